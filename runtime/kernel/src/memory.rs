//! Giving back memory that only the start needed.

use std::ffi::c_void;
use std::ptr::with_exposed_provenance_mut;

use crate::error::answered;
use crate::{Called, Result, descriptors};

/// Lets go of the code of this program that is in memory, and of its constants. What runs on comes back as it is called, from the
/// file, a few pages at a time; what only the start has called, and the loader has read, does not.
///
/// It saves a process of one sandbox about a third of its memory, for some hundred short page faults.
pub fn release_code() -> Result<()> {
    let maps = descriptors::read(MAPS).called("read /proc/self/maps")?;
    let maps = String::from_utf8_lossy(&maps);
    let program = std::fs::read_link(PROGRAM).called("readlink /proc/self/exe")?;
    let program = program.to_string_lossy();
    for code in maps.lines().filter_map(|line| code(line, &program)) {
        let length = code.end - code.start;
        let start: *mut c_void = with_exposed_provenance_mut(code.start);
        // SAFETY: the range is a mapping of this program's file that is private and not writable, as it was from the
        // start (the linker leaves no relocations in code, nor in the segment that begins with the file's header): each page is
        // the file's, and reads the same again.
        let answer = unsafe { libc::madvise(start, length, libc::MADV_DONTNEED) };
        answered("madvise MADV_DONTNEED", answer.into())?;
    }
    Ok(())
}

/// The range of a line of `/proc/PID/maps` that maps code or constants of `program`: START-END PERMISSIONS OFFSET DEVICE INODE PATH.
/// What could be written to while the program was loaded looks like constants, but never begins with the file.
fn code(line: &str, program: &str) -> Option<std::ops::Range<usize>> {
    let mut fields = line.splitn(6, ' ');
    let (range, permissions) = (fields.next()?, fields.next()?);
    let begins = fields.next()?.bytes().all(|digit| digit == b'0');
    let path = fields.nth(2)?.trim_start();
    let is_the_files = permissions == "r-xp" || (permissions == "r--p" && begins);
    if !is_the_files || path != program {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some(number(start)?..number(end)?)
}

const MAPS: &str = "/proc/self/maps";
const PROGRAM: &str = "/proc/self/exe";

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt as _;

    #[test]
    fn only_code_of_the_program_itself_is_let_go() {
        let program = "/usr/bin/our own";
        let at = |permissions, offset, path| {
            format!("55d000-55f000 {permissions} {offset} fe:00 42                {path}")
        };
        let line = |permissions, path| at(permissions, "0000a000", path);

        assert_eq!(
            code(&line("r-xp", program), program),
            Some(0x55_d000..0x55_f000)
        );
        for permissions in ["r--p", "rw-p", "rwxp", "r-xs"] {
            assert_eq!(code(&line(permissions, program), program), None);
        }
        let first = at("r--p", "00000000", program);
        assert_eq!(code(&first, program), Some(0x55_d000..0x55_f000));
        assert_eq!(code(&at("rw-p", "00000000", program), program), None);
        assert_eq!(code(&line("r-xp", "/usr/lib/libc.so.6"), program), None);
        assert_eq!(code(&line("r-xp", "[vdso]"), program), None);
        assert_eq!(code("", program), None);
    }

    #[test]
    fn a_process_that_let_go_of_its_code_goes_on() {
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/status").expect("read");
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("RssFile:"));
            let size = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
            size.expect("a size in KiB")
        };
        crate::apart::apart(|| {
            // To read it is to have it in memory.
            let maps = std::fs::read_to_string(MAPS).expect("read");
            let program = std::fs::read_link(PROGRAM).expect("read");
            let ours = maps
                .lines()
                .find_map(|line| code(line, &program.to_string_lossy()));
            let ours = ours.expect("there is code");
            let memory = std::fs::File::open("/proc/self/mem").expect("opened");
            let mut bytes = vec![0; ours.len()];
            memory
                .read_exact_at(&mut bytes, ours.start as u64)
                .expect("read");
            let before = resident();

            release_code().expect("let go");

            let after = resident();
            assert!(after < before, "{after} of {before}");
        });
    }
}
