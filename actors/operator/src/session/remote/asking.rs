//! Asks a session for what is not input: sizes, signals, and that it be told of a reader who has gone.

use std::time::Duration;

use holdfast_keeper::sessions::Control;
use holdfast_wire::v1;
use holdfast_wire::v1::session_input::Kind as Said;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{Manner, message};
use crate::client::Client;

/// Whoever asks one session.
pub(super) struct Asking {
    pub(super) client: Client,
    pub(super) say: mpsc::Sender<v1::SessionInput>,
    pub(super) sandbox: String,
    pub(super) session: u64,
    pub(super) manner: Manner,
}

impl Asking {
    /// Obeys what is asked, and tells of our readers that have `gone`, by their streams.
    pub(super) async fn obey(
        self,
        mut asked: mpsc::Receiver<Control>,
        mut gone: mpsc::Receiver<v1::Stream>,
    ) {
        loop {
            let control = tokio::select! {
                Some(control) = asked.recv() => control,
                Some(stream) = gone.recv() => {
                    self.tell(stream).await;
                    continue;
                }
                else => break,
            };
            match control {
                Control::Resize(size) => {
                    let size = v1::TerminalSize {
                        rows: size.rows.into(),
                        columns: size.columns.into(),
                    };
                    // Behind input that nobody takes a size waits too; the next one is newer anyway.
                    let _full = self.say.try_send(message(Said::Resize(size)));
                }
                // Signals do not stand in line behind input.
                Control::Signal(signal) => self.kill(signal).await,
                Control::Kill => self.kill(libc::SIGKILL).await,
            }
        }
        std::future::pending::<()>().await;
    }

    /// Tells that the reader of `stream` has gone. A program that writes hears of it from the kernel, also one that does not heed
    /// signals; one that writes no more hears by a signal.
    async fn tell(&self, stream: v1::Stream) {
        let closed = async {
            if self.manner.ends_streams() {
                self.close(stream).await;
            }
        };
        let signalled = async {
            if stream != v1::Stream::Stderr
                && let Some(signal) = self.manner.passed_on()
            {
                self.kill(signal).await;
            }
        };
        tokio::join!(closed, signalled);
    }

    async fn close(&self, stream: v1::Stream) {
        let request = v1::CloseStreamRequest {
            sandbox: self.sandbox.clone(),
            session: self.session,
            stream: stream.into(),
        };
        // One that has ended has no streams any more; its exit is on the way.
        let _asked = timeout(TOLD, self.client.clone().close(request)).await;
    }

    async fn kill(&self, signal: i32) {
        let request = v1::KillRequest {
            sandbox: self.sandbox.clone(),
            session: self.session,
            signal,
        };
        // One that has ended needs no signal; its exit is on the way.
        let _asked = timeout(TOLD, self.client.clone().kill(request)).await;
    }
}

/// How long a gateway or keeper that is busy may take to pass on a signal. Whoever leaves meanwhile takes it back.
const TOLD: Duration = Duration::from_secs(5);
