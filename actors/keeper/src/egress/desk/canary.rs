//! The canary's connection: it goes the way of every other one, and gets a word instead of an upstream.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use holdfast_policy::Identity;
use holdfast_wire::v1;

use super::Desk;
use crate::egress::attempt::{Cookie, Judge, Judgement};
use crate::sentinel::{PORT, Sentinel};
use holdfast_policy::Destination;

impl Desk {
    /// Answers the canaries of this sandbox from now on.
    pub fn answer_canaries(&self, sentinel: Arc<Sentinel>) {
        // There is one for the keeper's lifetime.
        drop(self.sentinel.set(sentinel));
    }

    /// Whether an attempt is the canary's: it goes on at once, and its connection is awaited.
    pub(in crate::egress) fn is_canary(
        &self,
        attempt: &v1::Attempt,
        hint: Option<SocketAddr>,
    ) -> bool {
        if attempt.port != u32::from(PORT) {
            return false;
        }
        let (Some(hint), Some(caller)) = (hint, attempt.caller.as_ref()) else {
            return false;
        };
        let identity = Identity::Observed {
            executable: caller.executable.clone(),
            ancestors: Vec::new(),
        };
        self.sentinel_at(hint, &identity).is_some_and(|sentinel| {
            caller.observed && sentinel.announced(&caller.executable, Cookie::new(attempt.cookie))
        })
    }

    /// Serves a connection if it is the canary's.
    pub(super) fn serve_canary(
        &self,
        mut stream: &TcpStream,
        destination: SocketAddr,
        cookie: Option<Cookie>,
    ) -> bool {
        if destination.port() != PORT {
            return false;
        }
        let word = self
            .sentinel_at(destination, &Identity::Unobservable)
            .and_then(|sentinel| sentinel.arrives(cookie));
        // A new connection has room for a word; if not, the canary says so.
        word.map(|word| stream.write_all(&word)).is_some()
    }

    /// The sentinel, if that is where `destination` leads. The court is asked as for any other attempt: a canary that passes has
    /// found it at work, though not its judgement.
    fn sentinel_at(&self, destination: SocketAddr, identity: &Identity) -> Option<&Sentinel> {
        let sentinel = self.sentinel.get()?;
        let Judgement { target, .. } = self.state.lock().court.judge(destination, identity);
        match target {
            Destination::Name(name) if name == *sentinel.name() => Some(sentinel),
            Destination::Name(_) | Destination::Address(_) => None,
        }
    }
}
