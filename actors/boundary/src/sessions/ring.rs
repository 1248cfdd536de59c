//! A session's output, kept until it is read or overwritten.
//!
//! Bytes are counted over both streams in the order of their arrival: an offset names a place for ever, whether it is still
//! kept or not.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};
use holdfast_wire::v1;

/// The newest output of a session.
#[derive(Debug)]
pub(crate) struct Ring {
    chunks: VecDeque<Chunk>,
    start: u64,
    end: u64,
    capacity: u64,
}

/// Bytes of one stream that came together.
#[derive(Debug)]
struct Chunk {
    offset: u64,
    stream: v1::Stream,
    bytes: Bytes,
}

/// What stands at an offset.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// These bytes of this stream; the reader goes on behind them.
    Chunk(v1::Stream, Bytes),
    /// So many bytes that were overwritten.
    Lost(u64),
    /// Nothing yet.
    Nothing,
}

impl Ring {
    /// An empty ring that keeps at most `capacity` bytes.
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            chunks: VecDeque::new(),
            start: 0,
            end: 0,
            capacity,
        }
    }

    /// The offsets of what is kept: its first byte, and the one behind its last.
    pub(crate) fn kept(&self) -> (u64, u64) {
        (self.start, self.end)
    }

    /// Forgets everything; what comes next has the offsets that it would have had.
    pub(crate) fn clear(&mut self) {
        self.chunks.clear();
        self.start = self.end;
    }

    /// Whether nothing more should be read for a reader at `offset`.
    pub(crate) fn is_full_for(&self, offset: u64) -> bool {
        self.end.saturating_sub(offset) >= self.capacity
    }

    /// Adds what has come, overwriting the oldest beyond the capacity, but nothing that a reader at `unread` has still to get: what was read for it just
    /// before the ring was full makes the ring longer by that much.
    pub(crate) fn push(&mut self, stream: v1::Stream, bytes: Bytes, unread: Option<u64>) {
        self.end += bytes.len() as u64;
        match self.chunks.back_mut() {
            // Many small writes would cost more in chunks than in bytes.
            Some(last) if last.stream == stream && last.bytes.len() + bytes.len() <= SMALL => {
                last.bytes = [&last.bytes[..], &bytes[..]].concat().into();
            }
            _ => {
                let offset = self.end - bytes.len() as u64;
                self.chunks.push_back(Chunk {
                    offset,
                    stream,
                    bytes,
                });
            }
        }
        let first = unread.unwrap_or(u64::MAX);
        let beyond = |start: u64, end: u64| (end - start).saturating_sub(self.capacity);
        while let excess @ 1.. = beyond(self.start, self.end).min(first.saturating_sub(self.start))
            && let Some(oldest) = self.chunks.front_mut()
        {
            let cut = excess.min(oldest.bytes.len() as u64);
            self.start += cut;
            oldest.offset += cut;
            oldest
                .bytes
                .advance(usize::try_from(cut).unwrap_or(usize::MAX));
            if oldest.bytes.is_empty() {
                self.chunks.pop_front();
            }
        }
    }

    /// What stands at `offset`.
    pub(crate) fn at(&self, offset: u64) -> Next {
        if offset < self.start {
            return Next::Lost(self.start - offset);
        }
        let behind = self.chunks.partition_point(|chunk| chunk.offset <= offset);
        let Some(chunk) = behind
            .checked_sub(1)
            .and_then(|index| self.chunks.get(index))
        else {
            return Next::Nothing;
        };
        let skipped = usize::try_from(offset - chunk.offset).unwrap_or(usize::MAX);
        if skipped < chunk.bytes.len() {
            return Next::Chunk(chunk.stream, chunk.bytes.slice(skipped..));
        }
        Next::Nothing
    }
}

/// Up to this size chunks are put together.
const SMALL: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    const OUT: v1::Stream = v1::Stream::Stdout;
    const ERR: v1::Stream = v1::Stream::Stderr;

    #[test]
    fn a_reader_gets_every_byte_of_both_streams_in_order() {
        let mut ring = Ring::new(100);
        ring.push(OUT, Bytes::from_static(b"one"), None);
        ring.push(ERR, Bytes::from_static(b"two"), None);

        assert_eq!(ring.at(0), Next::Chunk(OUT, Bytes::from_static(b"one")));
        assert_eq!(ring.at(2), Next::Chunk(OUT, Bytes::from_static(b"e")));
        assert_eq!(ring.at(3), Next::Chunk(ERR, Bytes::from_static(b"two")));
        assert_eq!(ring.at(6), Next::Nothing);
    }

    #[test]
    fn overwritten_output_is_counted() {
        let mut ring = Ring::new(4);
        ring.push(OUT, Bytes::from_static(b"abc"), None);
        ring.push(OUT, Bytes::from_static(b"def"), None);

        assert_eq!(ring.at(1), Next::Lost(1));
        assert_eq!(ring.at(2), Next::Chunk(OUT, Bytes::from_static(b"cdef")));
    }

    #[test]
    fn what_an_attached_reader_has_still_to_get_is_never_overwritten() {
        let mut ring = Ring::new(4);
        ring.push(OUT, Bytes::from_static(b"abc"), Some(0));
        ring.push(ERR, Bytes::from_static(b"defg"), Some(2));

        assert_eq!(ring.at(1), Next::Lost(1));
        assert_eq!(ring.at(2), Next::Chunk(OUT, Bytes::from_static(b"c")));
        assert_eq!(ring.at(3), Next::Chunk(ERR, Bytes::from_static(b"defg")));
    }

    #[test]
    fn a_reader_that_is_a_whole_ring_behind_would_lose_bytes() {
        let mut ring = Ring::new(4);
        ring.push(OUT, Bytes::from_static(b"abcd"), None);

        assert!(ring.is_full_for(0));
        assert!(!ring.is_full_for(1));
    }

    #[test]
    fn small_writes_are_put_together() {
        let mut ring = Ring::new(1 << 20);
        for _ in 0..10_000 {
            ring.push(OUT, Bytes::from_static(b"x"), None);
        }

        assert!(ring.chunks.len() <= 20);
        assert_eq!(ring.at(9_999), Next::Chunk(OUT, Bytes::from_static(b"x")));
    }
}
