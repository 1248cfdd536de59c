//! Buffers for the relays: small at first, large under bulk, and none for a connection that is idle.
//!
//! A relay takes a buffer when a socket is readable and gives it back before it waits again, unless the other side is slower: then the unsent rest
//! stays in the buffer. What a thousand stalled downloads can hold is bounded: beyond [`LARGE_OUT`] large buffers the pool lends small ones.

use parking_lot::Mutex;

/// How much a relay reads at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// Requests and answers: stays in the processor's first caches.
    Small,
    /// Bulk: what filled a small buffer.
    Large,
}

impl Grade {
    /// Bytes in a buffer of this grade.
    pub const fn bytes(self) -> usize {
        match self {
            Grade::Small => 16 << 10,
            Grade::Large => 256 << 10,
        }
    }

    /// The grade of the next read, after one that brought `read` bytes.
    #[must_use]
    pub fn after(self, read: usize) -> Grade {
        match self {
            Grade::Small if read == Grade::Small.bytes() => Grade::Large,
            Grade::Large if read < Grade::Small.bytes() => Grade::Small,
            Grade::Small | Grade::Large => self,
        }
    }
}

/// Idle buffers, shared by the relays of one keeper.
#[derive(Debug, Default)]
pub struct Pool {
    shelves: Mutex<Shelves>,
}

#[derive(Debug, Default)]
struct Shelves {
    small: Vec<Box<[u8]>>,
    large: Vec<Box<[u8]>>,
    large_out: usize,
}

impl Pool {
    /// A buffer of the wished grade, or a small one when too many large ones are out.
    pub fn take(&self, wished: Grade) -> Box<[u8]> {
        let (grade, shelved) = {
            let mut shelves = self.shelves.lock();
            let grade = if wished == Grade::Large && shelves.large_out >= LARGE_OUT {
                Grade::Small
            } else {
                wished
            };
            if grade == Grade::Large {
                shelves.large_out += 1;
            }
            (grade, shelves.of(grade).pop())
        };
        shelved.unwrap_or_else(|| vec![0; grade.bytes()].into_boxed_slice())
    }

    /// Takes a buffer back; beyond [`SHELVED`] bytes a shelf frees it.
    pub fn give(&self, buffer: Box<[u8]>) {
        let mut shelves = self.shelves.lock();
        let grade = if buffer.len() < Grade::Large.bytes() {
            Grade::Small
        } else {
            Grade::Large
        };
        if grade == Grade::Large {
            shelves.large_out = shelves.large_out.saturating_sub(1);
        }
        let idle = shelves.of(grade);
        if idle.len() < SHELVED / grade.bytes() {
            idle.push(buffer);
        }
    }

    /// Large buffers that relays hold at the moment.
    pub fn large_out(&self) -> usize {
        self.shelves.lock().large_out
    }
}

impl Shelves {
    fn of(&mut self, grade: Grade) -> &mut Vec<Box<[u8]>> {
        match grade {
            Grade::Small => &mut self.small,
            Grade::Large => &mut self.large,
        }
    }
}

/// Large buffers out at once: 16 MiB.
pub const LARGE_OUT: usize = 64;
/// Idle bytes kept per grade.
pub const SHELVED: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_grows_its_reads_and_a_talk_shrinks_them_again() {
        let grown = Grade::Small.after(16 << 10);
        assert_eq!(grown, Grade::Large);

        let shrunk = grown.after(100);
        assert_eq!(shrunk, Grade::Small);
        assert_eq!(Grade::Large.after(20 << 10), Grade::Large);
    }

    #[test]
    fn no_more_than_the_limit_of_large_buffers_is_out() {
        let pool = Pool::default();
        let held: Vec<_> = (0..LARGE_OUT + 5)
            .map(|_| pool.take(Grade::Large))
            .collect();

        assert_eq!(pool.large_out(), LARGE_OUT);
        assert_eq!(held[LARGE_OUT].len(), Grade::Small.bytes());

        for buffer in held {
            pool.give(buffer);
        }
        assert_eq!(pool.large_out(), 0);
        let idle: usize = pool.shelves.lock().large.len() * Grade::Large.bytes();
        assert!(idle <= SHELVED, "{idle} bytes lie on the large shelf");
    }
}
