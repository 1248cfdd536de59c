//! What the siege runs inside the sandbox: connects, holds connections, floods, or writes without end.
//!
//! Small and of the standard library alone: it is started a few times a second, and copied into sandboxes that have nothing of the kind.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match act(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _nobody_reads = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn act(arguments: &[&str]) -> io::Result<()> {
    match arguments {
        ["nothing"] => Ok(()),
        ["connect", host, port] => connect(host, port),
        ["reach", host, port] => {
            let _connected = dial(host, port)?;
            Ok(())
        }
        ["hold", host, port, count] => hold(host, port, count),
        ["flood", host, port, apart] => flood(host, port, apart),
        ["pour"] => pour(),
        // Where it was copied to, nothing of it stays.
        ["leave"] => std::env::current_exe().and_then(std::fs::remove_file),
        _ => Err(io::Error::other(
            "usage: nothing | connect HOST PORT | reach HOST PORT | hold HOST PORT COUNT | flood HOST PORT MILLIS | pour | leave",
        )),
    }
}

/// The whole way of an agent: a name, a connection, a word and its echo.
fn connect(host: &str, port: &str) -> io::Result<()> {
    let mut stream = dial(host, port)?;
    let word = format!("{}\n", std::process::id());
    stream.write_all(word.as_bytes())?;
    let mut echo = vec![0; word.len()];
    stream.read_exact(&mut echo)?;
    if echo == word.as_bytes() {
        Ok(())
    } else {
        Err(io::Error::other("the echo is another word"))
    }
}

fn dial(host: &str, port: &str) -> io::Result<TcpStream> {
    let port: u16 = number(port)?;
    let mut last = io::Error::other("the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect(address) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Holds so many connections until the input ends, and says how many it got. Ends at once when one of them is closed.
fn hold(host: &str, port: &str, count: &str) -> io::Result<()> {
    let count: u64 = number(count)?;
    let wanted = Arc::new(AtomicU64::new(count));
    let held = Arc::new(AtomicU64::new(0));
    for _ in 0..count.min(MOST_THREADS) {
        let (host, port) = (host.to_owned(), port.to_owned());
        let (wanted, held) = (Arc::clone(&wanted), Arc::clone(&held));
        thread::Builder::new().stack_size(STACK).spawn(move || {
            let mut mine = Vec::new();
            while wanted
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    left.checked_sub(1)
                })
                .is_ok()
            {
                match dial(&host, &port) {
                    Ok(stream) => {
                        mine.push(stream);
                        held.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(_refused) => {
                        wanted.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(PAUSE);
                    }
                }
            }
            watch(&mut mine)
        })?;
    }
    io::copy(&mut io::stdin(), &mut io::sink())?;
    writeln!(io::stdout(), "{}", held.load(Ordering::Relaxed))
}

/// Nobody sends anything, so that whatever is read is an end.
fn watch(streams: &mut [TcpStream]) -> ! {
    for stream in &*streams {
        let _looked_at_less_often = stream.set_read_timeout(Some(LOOK));
    }
    loop {
        for stream in &mut *streams {
            let still = match stream.read(&mut [0]) {
                Ok(count) => count > 0,
                Err(error) => matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock
                        | io::ErrorKind::TimedOut
                        | io::ErrorKind::Interrupted
                ),
            };
            if !still {
                std::process::exit(CUT);
            }
        }
        if streams.is_empty() {
            thread::park();
        }
    }
}

/// Connects again and again until the input ends.
fn flood(host: &str, port: &str, apart: &str) -> io::Result<()> {
    let apart = Duration::from_millis(number(apart)?);
    let (host, port) = (host.to_owned(), port.to_owned());
    thread::spawn(move || {
        loop {
            let _reached_or_not = dial(&host, &port);
            thread::sleep(apart);
        }
    });
    io::copy(&mut io::stdin(), &mut io::sink()).map(drop)
}

fn pour() -> io::Result<()> {
    let block = vec![b'.'; 64 * 1024];
    loop {
        io::stdout().write_all(&block)?;
    }
}

fn number<T: std::str::FromStr>(text: &str) -> io::Result<T> {
    text.parse()
        .map_err(|_| io::Error::other(format!("`{text}` is no number")))
}

const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);
/// Between two looks at a connection that is held.
const LOOK: Duration = Duration::from_millis(500);
/// The status of one whose connection was closed by somebody else.
const CUT: i32 = 3;
const MOST_THREADS: u64 = 64;
const STACK: usize = 64 * 1024;
