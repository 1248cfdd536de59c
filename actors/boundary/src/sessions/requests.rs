//! Which launches were asked for, so that one that is asked for again is answered and not repeated.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use holdfast_actor::Moment;
use tokio::sync::watch;

use super::Outcome;

/// The requests of the last minute.
#[derive(Debug, Default)]
pub(super) struct Requests {
    known: HashMap<String, watch::Receiver<Option<Outcome>>>,
    /// In the order in which they came.
    order: VecDeque<(Moment, String)>,
}

/// What a request finds.
pub(super) enum Place {
    /// Nobody has asked before: this is where to tell, and where to hear.
    Fresh(
        watch::Sender<Option<Outcome>>,
        watch::Receiver<Option<Outcome>>,
    ),
    /// Somebody has: here is the answer, or it will be.
    Known(watch::Receiver<Option<Outcome>>),
}

impl Requests {
    /// Enters the request `id`; an empty one is never found again.
    pub(super) fn enter(&mut self, id: &str, now: Moment) -> Place {
        self.forget(now);
        // One whose asker was cut off before anything happened has no answer, and never will.
        let open = |reply: &&watch::Receiver<Option<Outcome>>| {
            reply.borrow().is_some() || reply.has_changed().is_ok()
        };
        if let Some(reply) = self.known.get(id).filter(open) {
            return Place::Known(reply.clone());
        }
        let (tell, reply) = watch::channel(None);
        if !id.is_empty() {
            if self.known.insert(id.to_owned(), reply.clone()).is_some() {
                // It is remembered from now on, not from when it was broken off.
                self.order.retain(|(_, known)| known != id);
            }
            self.order.push_back((now, id.to_owned()));
        }
        Place::Fresh(tell, reply)
    }

    fn forget(&mut self, now: Moment) {
        while let Some((at, id)) = self.order.front()
            && (now - *at > MEMORY || self.order.len() > MOST)
        {
            self.known.remove(id);
            self.order.pop_front();
        }
    }
}

/// How long a request is remembered.
const MEMORY: Duration = Duration::from_mins(1);

/// How many are remembered.
const MOST: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_actor::Clock;

    fn is_fresh(place: &Place) -> bool {
        matches!(place, Place::Fresh(..))
    }

    #[test]
    fn a_request_is_found_again_for_a_minute_and_then_forgotten() {
        let (mut requests, now) = (Requests::default(), Clock::tokio().now());
        let Place::Fresh(tell, _) = requests.enter("one", now) else {
            panic!("nobody has asked");
        };
        tell.send_replace(Some(Ok(7)));

        let Place::Known(reply) = requests.enter("one", now + MEMORY) else {
            panic!("it was asked for");
        };
        assert!(matches!(*reply.borrow(), Some(Ok(7))));
        assert!(is_fresh(&requests.enter("one", now + MEMORY * 2)));
        assert!(is_fresh(&requests.enter("", now)));
        assert!(is_fresh(&requests.enter("", now)));
    }

    #[test]
    fn a_request_that_was_broken_off_can_be_made_again() {
        let (mut requests, now) = (Requests::default(), Clock::tokio().now());
        drop(requests.enter("one", now));

        let later = now + MEMORY / 2;
        let Place::Fresh(tell, _) = requests.enter("one", later) else {
            panic!("it has come to nothing");
        };
        tell.send_replace(Some(Ok(7)));

        let end = requests.enter("one", later + MEMORY);
        assert!(!is_fresh(&end), "it is remembered as long as any other");
        assert_eq!(requests.order.len(), 1);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut requests, now) = (Requests::default(), Clock::tokio().now());
        for number in 0..2 * MOST {
            requests.enter(&number.to_string(), now);
        }

        assert!(requests.known.len() <= MOST + 1);
        assert!(requests.order.len() <= MOST + 1);
    }
}
