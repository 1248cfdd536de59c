//! Pseudo-terminals of one instance of `devpts`.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use crate::descriptors::noted;
use crate::error::{Called, Result, answered};

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Lines.
    pub rows: u16,
    /// Characters a line.
    pub columns: u16,
}

/// What a terminal has when nobody says its size.
impl Default for Size {
    fn default() -> Self {
        Self {
            rows: 24,
            columns: 80,
        }
    }
}

/// Opens a new pair from the instance mounted at `/dev/pts`: first the master, then the terminal.
pub fn open_pair(size: Size) -> Result<(OwnedFd, OwnedFd)> {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let master = noted(open("/dev/pts/ptmx", flags, Mode::empty()).called("open /dev/pts/ptmx")?);
    let unlocked: libc::c_int = 0;
    // SAFETY: the request reads one int, which lives here.
    let answer = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked) };
    answered("ioctl TIOCSPTLCK", answer.into())?;
    // SAFETY: the request takes open flags as a number.
    let answer = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags.bits()) };
    let terminal = answered("ioctl TIOCGPTPEER", answer.into())?;
    #[expect(clippy::cast_possible_truncation, reason = "a descriptor fits")]
    // SAFETY: the kernel has just made this descriptor for us alone.
    let terminal = noted(unsafe { OwnedFd::from_raw_fd(terminal as i32) });
    resize(&master, size)?;
    Ok((master, terminal))
}

/// Sets the size; the foreground process group hears of it by `SIGWINCH`.
pub fn resize(terminal: impl AsFd, size: Size) -> Result<()> {
    let window = libc::winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let fd = terminal.as_fd().as_raw_fd();
    // SAFETY: the request reads one `winsize`, which lives here.
    let answer = unsafe { libc::ioctl(fd, libc::TIOCSWINSZ, &raw const window) };
    answered("ioctl TIOCSWINSZ", answer.into()).map(drop)
}

/// The size of the terminal behind `fd`; `None` if it is no terminal or has no size.
pub fn size(fd: impl AsFd) -> Option<Size> {
    let mut window = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the request writes one `winsize`, which lives here.
    let answer = unsafe { libc::ioctl(fd, libc::TIOCGWINSZ, &raw mut window) };
    let size = Size {
        rows: window.ws_row,
        columns: window.ws_col,
    };
    (answer == 0 && size.rows > 0 && size.columns > 0).then_some(size)
}

/// Makes `terminal` the controlling terminal of the calling session leader.
pub fn control(terminal: impl AsFd) -> Result<()> {
    let fd = terminal.as_fd().as_raw_fd();
    // SAFETY: the request takes a number.
    let answer = unsafe { libc::ioctl(fd, libc::TIOCSCTTY, 0) };
    answered("ioctl TIOCSCTTY", answer.into()).map(drop)
}
