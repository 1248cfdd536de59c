//! The canary: a program of its own that goes the way of an agent and says with its status how far it came.
//!
//! ```text
//!  resolve ── address ──> connect ──> read ── the word that was agreed on ──> 0
//!     └── 10…13, 40…55       └── 20, 100…    └── 30…32
//! ```
//!
//! It is run every few seconds in every sandbox, so it is as small as a program can be: no library, no heap, no file but
//! itself. `canary SERVER PORT NAME PORT WORD`: the name server as one number and its port, then what is asked for.

#![no_std]
#![no_main]

use core::arch::{asm, global_asm};

include!("codes.rs");

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".globl _start",
    "_start:",
    "mov rdi, rsp",
    "and rsp, -16",
    "call {begin}",
    begin = sym begin
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".globl _start",
    "_start:",
    "mov x0, sp",
    "bl {begin}",
    begin = sym begin
);

/// The stack as the kernel hands it over: how many arguments, then a pointer to each.
unsafe extern "C" fn begin(stack: *const usize) -> ! {
    // SAFETY: the entry above passes on the stack pointer of a new process, which leads to the number of its arguments.
    let count = unsafe { stack.read() };
    let status = if count == ARGUMENTS {
        let argument = |index: usize| {
            // SAFETY: behind the number stand as many pointers, and each index below is smaller than `ARGUMENTS`.
            let place = unsafe { stack.add(1 + index) };
            // SAFETY: the kernel has put a pointer there, and nobody has written to it.
            let start = unsafe { place.read() };
            // SAFETY: it leads to a string that the kernel has ended with a NUL; the stack is there as long as the process.
            unsafe { text(start as *const u8) }
        };
        walk(
            (number(argument(1)), number(argument(2))),
            argument(3),
            number(argument(4)),
            argument(5),
        )
    } else {
        UNTOLD
    };
    exit(status)
}

fn exit(status: i32) -> ! {
    loop {
        call(EXIT_GROUP, [status as usize, 0, 0, 0, 0, 0]);
    }
}

fn walk(server: (u32, u32), name: &[u8], port: u32, word: &[u8]) -> i32 {
    let address = match resolve(server, name) {
        Ok(address) => address,
        Err(status) => return status,
    };
    let Ok(stream) = opened(STREAM) else {
        return NO_STREAM_SOCKET;
    };
    let target = inet(address, port);
    let connected = call(CONNECT, [stream, target.as_ptr() as usize, 16, 0, 0, 0]);
    if connected < 0 {
        return CONNECT_ERRNO - connected as i32;
    }
    let mut heard = [0; 64];
    let mut length = 0;
    while length < word.len() {
        if !readable(stream) {
            return SILENT;
        }
        match receive(stream, heard.get_mut(length..).unwrap_or_default()) {
            Some(more @ 1..) => length += more,
            Some(0) | None => return CLOSED,
        }
    }
    if heard.get(..length) == Some(word) {
        0
    } else {
        OTHER_WORD
    }
}

/// Asks `server` for the IPv4 address of `name` (RFC 1035).
fn resolve(server: (u32, u32), name: &[u8]) -> Result<[u8; 4], i32> {
    let socket = opened(DATAGRAM).map_err(|()| NO_DATAGRAM_SOCKET)?;
    let mut query = [0; 320];
    let length = question(name, &mut query).ok_or(UNTOLD)?;
    let target = inet(server.0.to_be_bytes(), server.1);
    let (bytes, to) = (query.as_ptr() as usize, target.as_ptr() as usize);
    if call(SENDTO, [socket, bytes, length, 0, to, 16]) < 0 {
        return Err(UNASKED);
    }
    if !readable(socket) {
        return Err(UNANSWERED);
    }
    let mut answer = [0; 512];
    let heard = receive(socket, &mut answer).ok_or(UNANSWERED)?;
    address(answer.get(..heard).ok_or(NO_ADDRESS)?, length)
}

/// A header that asks for recursion, and one question: the address (type 1) in the internet (class 1).
fn question(name: &[u8], query: &mut [u8; 320]) -> Option<usize> {
    *query.get_mut(2)? = 1;
    *query.get_mut(5)? = 1;
    let mut label = 12;
    let mut at = 13;
    for byte in name {
        if *byte == b'.' {
            label = at;
        } else {
            *query.get_mut(at)? = *byte;
            *query.get_mut(label)? += 1;
        }
        at += 1;
    }
    *query.get_mut(at + 2)? = 1;
    *query.get_mut(at + 4)? = 1;
    Some(at + 5)
}

/// The first address of an answer whose first record begins at `at`, behind the question.
fn address(answer: &[u8], at: usize) -> Result<[u8; 4], i32> {
    let code = i32::from(answer.get(3).ok_or(NO_ADDRESS)? & 15);
    if code != 0 {
        return Err(ANSWER_CODE + code);
    }
    // Its name is a pointer to the question's: 2 bytes, then type, class, time to live, length.
    match answer.get(at..at + 16) {
        Some(&[192..=255, _, 0, 1, 0, 1, _, _, _, _, 0, 4, a, b, c, d]) => Ok([a, b, c, d]),
        _ => Err(NO_ADDRESS),
    }
}

fn opened(kind: usize) -> Result<usize, ()> {
    let socket = call(SOCKET, [2, kind | CLOEXEC, 0, 0, 0, 0]);
    if socket < 0 {
        Err(())
    } else {
        Ok(socket as usize)
    }
}

/// `struct sockaddr_in`.
fn inet([a, b, c, d]: [u8; 4], port: u32) -> [u8; 16] {
    let [_, _, high, low] = port.to_be_bytes();
    let [family, zero] = 2_u16.to_ne_bytes();
    [family, zero, high, low, a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0]
}

/// Waits for something to read.
fn readable(socket: usize) -> bool {
    let wanted: [u32; 2] = [socket as u32, POLLIN];
    let patience: [i64; 2] = [1, 0];
    let arguments = [
        wanted.as_ptr() as usize,
        1,
        patience.as_ptr() as usize,
        0,
        0,
        0,
    ];
    call(PPOLL, arguments) > 0
}

fn receive(socket: usize, into: &mut [u8]) -> Option<usize> {
    let arguments = [socket, into.as_mut_ptr() as usize, into.len(), 0, 0, 0];
    usize::try_from(call(RECVFROM, arguments)).ok()
}

fn number(text: &[u8]) -> u32 {
    let mut number = 0_u32;
    for digit in text {
        number = number
            .wrapping_mul(10)
            .wrapping_add(u32::from(digit.wrapping_sub(b'0')));
    }
    number
}

/// # Safety
///
/// `start` leads to a string that ends with a NUL and lives as long as the process.
unsafe fn text(start: *const u8) -> &'static [u8] {
    let mut length = 0;
    loop {
        // SAFETY: no byte so far was the NUL, so this one belongs to the string as well.
        let place = unsafe { start.add(length) };
        // SAFETY: it does, and may be read. Volatile, or this loop would become a call of `strlen`.
        if unsafe { place.read_volatile() } == 0 {
            break;
        }
        length += 1;
    }
    // SAFETY: so many bytes were just read there; they live as long as the process, and nobody writes to them.
    unsafe { core::slice::from_raw_parts(start, length) }
}

#[cfg(target_arch = "x86_64")]
fn call(number: usize, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let answer: isize;
    // SAFETY: each caller passes what the call with that number takes; pointers lead to locals of its own.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    answer
}

#[cfg(target_arch = "aarch64")]
fn call(number: usize, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let answer: isize;
    // SAFETY: as for the other architecture.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a as isize => answer,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack)
        );
    }
    answer
}

/// What the compiler takes for granted.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(start: *mut u8, value: i32, length: usize) -> *mut u8 {
    let mut at = 0;
    while at < length {
        // SAFETY: `at` lies within the range that the caller vouches for.
        let place = unsafe { start.add(at) };
        // SAFETY: which may be written. Volatile, or this loop would become a call of itself.
        unsafe { place.write_volatile(value as u8) };
        at += 1;
    }
    start
}

/// What the compiler takes for granted.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    let mut at = 0;
    while at < length {
        // SAFETY: `at` lies within both ranges that the caller vouches for.
        let source = unsafe { from.add(at) };
        // SAFETY: as above.
        let target = unsafe { to.add(at) };
        // SAFETY: the one range may be read.
        let byte = unsafe { source.read() };
        // SAFETY: and the other may be written. Volatile, or this loop would become a call of itself.
        unsafe { target.write_volatile(byte) };
        at += 1;
    }
    to
}

/// What the compiler takes for granted.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(left: *const u8, right: *const u8, length: usize) -> i32 {
    let mut at = 0;
    while at < length {
        // SAFETY: `at` lies within both ranges that the caller vouches for.
        let one = unsafe { left.add(at) };
        // SAFETY: as above.
        let other = unsafe { right.add(at) };
        // SAFETY: both may be read. Volatile, or this loop would become a call of itself.
        let one = unsafe { one.read_volatile() };
        // SAFETY: as above.
        let other = unsafe { other.read_volatile() };
        if one != other {
            return i32::from(one) - i32::from(other);
        }
        at += 1;
    }
    0
}

/// What the compiler takes for granted; the linker finds the one above.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(left: *const u8, right: *const u8, length: usize) -> i32 {
    // SAFETY: what the caller vouches for is what the other wants.
    unsafe { memcmp(left, right, length) }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    exit(UNTOLD)
}

/// With the program's own name.
const ARGUMENTS: usize = 6;

const STREAM: usize = 1;
const DATAGRAM: usize = 2;
const CLOEXEC: usize = 0o2_000_000;
/// In the lower half of the word, which both architectures store first.
const POLLIN: u32 = 1;

#[cfg(target_arch = "x86_64")]
mod numbers {
    pub const SOCKET: usize = 41;
    pub const CONNECT: usize = 42;
    pub const SENDTO: usize = 44;
    pub const RECVFROM: usize = 45;
    pub const EXIT_GROUP: usize = 231;
    pub const PPOLL: usize = 271;
}

#[cfg(target_arch = "aarch64")]
mod numbers {
    pub const SOCKET: usize = 198;
    pub const CONNECT: usize = 203;
    pub const SENDTO: usize = 206;
    pub const RECVFROM: usize = 207;
    pub const EXIT_GROUP: usize = 94;
    pub const PPOLL: usize = 73;
}

use numbers::{CONNECT, EXIT_GROUP, PPOLL, RECVFROM, SENDTO, SOCKET};
