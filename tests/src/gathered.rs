//! Output that a thread gathers, so that nobody has to wait for a pipe.

use std::io::Read;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Bytes that a thread reads from a pipe.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gathered(Arc<(Mutex<Stream>, Condvar)>);

#[derive(Debug, Default)]
struct Stream {
    bytes: Vec<u8>,
    ended: bool,
}

/// A pipe must be closed this soon after the process is gone.
const CLOSES: Duration = Duration::from_secs(5);

impl Gathered {
    pub(crate) fn from(mut pipe: impl Read + Send + 'static) -> Self {
        let gathered = Self::default();
        let mine = gathered.clone();
        std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            loop {
                let got = match pipe.read(&mut buffer) {
                    Ok(got) => got,
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                    // A terminal answers EIO when its other side is gone.
                    Err(_) => 0,
                };
                let mut stream = mine.0.0.lock().unwrap_or_else(PoisonError::into_inner);
                stream.bytes.extend_from_slice(&buffer[..got]);
                stream.ended = got == 0;
                let over = stream.ended;
                drop(stream);
                mine.0.1.notify_all();
                if over {
                    return;
                }
            }
        });
        gathered
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .bytes
            .clone()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    /// The text once it contains this; the text so far when it ended or the limit came first.
    pub(crate) fn wait_for(&self, text: &str, limit: Duration) -> Result<String, String> {
        let has = |stream: &Stream| String::from_utf8_lossy(&stream.bytes).contains(text);
        let stream = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (stream, _) = self
            .0
            .1
            .wait_timeout_while(stream, limit, |stream| !has(stream) && !stream.ended)
            .unwrap_or_else(PoisonError::into_inner);
        let all = String::from_utf8_lossy(&stream.bytes).into_owned();
        if has(&stream) { Ok(all) } else { Err(all) }
    }

    pub(crate) fn wait_for_end(&self) -> bool {
        let stream = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .0
            .1
            .wait_timeout_while(stream, CLOSES, |stream| !stream.ended);
        waited.unwrap_or_else(PoisonError::into_inner).0.ended
    }
}
