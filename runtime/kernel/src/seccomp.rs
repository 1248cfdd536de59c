//! Filters of system calls: which the kernel refuses, which it asks a broker about.
//!
//! The program is compiled by `seccompiler`, which knows neither user notification nor the x32 calls. It is told to
//! answer with marked values instead, and the marks are rewritten before the program is installed.

use std::collections::BTreeMap;
use std::os::fd::{FromRawFd, OwnedFd};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

use crate::descriptors::noted;
use crate::error::{Error, Result, answered};

/// What the kernel answers to a call that the filter names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It asks the holder of the listener.
    Ask,
    /// It refuses with this errno.
    Refuse(u16),
}

/// A condition on one argument of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When {
    /// Which argument, from 0.
    pub argument: u8,
    /// These bits only are compared.
    pub mask: u32,
    /// How they are compared.
    pub is: Compare,
}

/// How the masked bits of an argument are compared: as 32 bits, for the kernel's `int` and flag arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// They are this.
    Equal(u32),
    /// They are not this; the mask must be whole.
    NotEqual(u32),
}

/// A filter under construction. What it does not name is allowed.
#[derive(Debug, Default)]
pub struct Filter {
    asked: BTreeMap<i64, Vec<Vec<When>>>,
    refused: BTreeMap<u16, BTreeMap<i64, Vec<Vec<When>>>>,
}

impl Filter {
    /// An empty filter: foreign architectures and x32 calls kill the process, all else is allowed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers the call `number` when all of `when` hold (none: always). Several calls add alternatives.
    pub fn on(&mut self, number: i64, answer: Answer, when: &[When]) -> &mut Self {
        let calls = match answer {
            Answer::Ask => &mut self.asked,
            Answer::Refuse(errno) => self.refused.entry(errno).or_default(),
        };
        let alternatives = calls.entry(number).or_default();
        if when.is_empty() {
            alternatives.clear();
        } else {
            alternatives.push(when.to_vec());
        }
        self
    }

    /// Installs the filter in this thread and all its later children. Refusals win over questions.
    ///
    /// Answers the listener on which the kernel asks. There can be one for a process and all its descendants.
    pub fn install(&self) -> Result<OwnedFd> {
        for (errno, calls) in &self.refused {
            let program = compile(calls, libc::SECCOMP_RET_ERRNO | u32::from(*errno))?;
            load(&program, 0)?;
        }
        let program = compile(&self.asked, libc::SECCOMP_RET_USER_NOTIF)?;
        let flags =
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
        let listener = load(&program, flags)?;
        #[expect(clippy::cast_possible_truncation, reason = "a descriptor fits")]
        // SAFETY: with NEW_LISTENER the call answers a new descriptor that nobody else owns.
        Ok(noted(unsafe { OwnedFd::from_raw_fd(listener as i32) }))
    }

    /// Installs a filter that asks nobody.
    pub fn install_refusals(&self) -> Result<()> {
        for (errno, calls) in &self.refused {
            load(
                &compile(calls, libc::SECCOMP_RET_ERRNO | u32::from(*errno))?,
                0,
            )?;
        }
        Ok(())
    }
}

/// The synchronous wake-up: the waiting caller and the broker run on one core in turn. Best effort, Linux 6.6.
pub fn wake_synchronously(listener: &OwnedFd) {
    use std::os::fd::AsRawFd;
    // SAFETY: the request takes a number and no memory.
    let _ = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS,
            SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP,
        )
    };
}

fn compile(calls: &BTreeMap<i64, Vec<Vec<When>>>, answer: u32) -> Result<BpfProgram> {
    let invalid = |_| Error::new("compile the seccomp filter", libc::EINVAL);
    let mut rules = BTreeMap::new();
    for (number, alternatives) in calls {
        let alternatives = alternatives
            .iter()
            .map(|when| {
                SeccompRule::new(
                    when.iter()
                        .map(condition)
                        .collect::<std::result::Result<_, _>>()?,
                )
            })
            .collect::<std::result::Result<Vec<_>, _>>()
            .map_err(invalid)?;
        rules.insert(*number, alternatives);
    }
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(invalid)?;
    let marked = SeccompAction::Trace(MARK);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, marked, arch).map_err(invalid)?;
    let mut program = BpfProgram::try_from(filter).map_err(invalid)?;
    for instruction in &mut program {
        if instruction.code == RETURN && instruction.k == libc::SECCOMP_RET_TRACE | MARK {
            instruction.k = answer;
        }
    }
    if cfg!(target_arch = "x86_64") {
        // After the three instructions that check the architecture: x32 calls share its number and would pass.
        program.splice(ARCH_CHECK..ARCH_CHECK, X32_GUARD);
    }
    Ok(program)
}

fn condition(when: &When) -> std::result::Result<SeccompCondition, seccompiler::BackendError> {
    let length = SeccompCmpArgLen::Dword;
    let (operator, value) = match when.is {
        Compare::Equal(value) if when.mask == u32::MAX => (SeccompCmpOp::Eq, value),
        Compare::Equal(value) => (SeccompCmpOp::MaskedEq(when.mask.into()), value),
        Compare::NotEqual(value) => (SeccompCmpOp::Ne, value),
    };
    SeccompCondition::new(when.argument, length, operator, value.into())
}

fn load(program: &BpfProgram, flags: libc::c_ulong) -> Result<libc::c_long> {
    let length = u16::try_from(program.len()).map_err(|_| Error::new("seccomp", libc::E2BIG))?;
    let filter = libc::sock_fprog {
        len: length,
        filter: program.as_ptr().cast_mut().cast(),
    };
    // SAFETY: `filter` points at `len` instructions of the kernel's own layout (`sock_filter` is repr(C) with the same
    // four fields); the kernel copies them during the call and does not write.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const filter,
        )
    };
    answered("seccomp", answer)
}

const MARK: u32 = 0x4e54;
const RETURN: u16 = 0x06;
const ARCH_CHECK: usize = 3;
const X32_BIT: u32 = 0x4000_0000;
const X32_GUARD: [sock_filter; 3] = [
    sock_filter {
        code: 0x20,
        jt: 0,
        jf: 0,
        k: 0,
    },
    sock_filter {
        code: 0x35,
        jt: 0,
        jf: 1,
        k: X32_BIT,
    },
    sock_filter {
        code: RETURN,
        jt: 0,
        jf: 0,
        k: libc::SECCOMP_RET_KILL_PROCESS,
    },
];
const SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP: u64 = 1;
