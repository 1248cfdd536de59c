//! Builds a view of the file system: mounts, binds with their limits, a new root.

use std::ffi::CString;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{chdir, pivot_root};

use crate::descriptors::noted;
use crate::error::{Called, Result, answered};

/// What a bind mount forbids, on itself and on all that is mounted below it. Set-user-id bits are always void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limits {
    /// Writing and devices.
    ReadOnly,
    /// Devices.
    ReadWrite,
    /// Writing; this is for device nodes.
    Device,
}

/// Makes every mount of this namespace private: what is mounted here is seen nowhere else.
pub fn make_private() -> Result<()> {
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None::<&str>,
    )
    .called("mount --make-rprivate /")
}

/// Mounts a new file system of `kind` on `target`.
pub fn mount_new(kind: &'static str, target: &Path, flags: MsFlags, options: &str) -> Result<()> {
    mount(Some(kind), target, Some(kind), flags, Some(options)).called(kind)
}

/// Binds `source` with everything mounted below it to `target`, within `limits`.
///
/// The limits are set before the mount is attached, so that there is no moment without them. One descriptor is open
/// meanwhile.
pub fn bind(source: &Path, target: &Path, limits: Limits) -> Result<()> {
    let tree = open_tree(source)?;
    set_attributes(&tree, limits)?;
    move_mount(&tree, target)
}

/// Makes the mount at `target` read-only; mounts below it stay as they are.
pub fn make_read_only(target: &Path, also: MsFlags) -> Result<()> {
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | also;
    mount(None::<&str>, target, None::<&str>, flags, None::<&str>).called("mount --remount,ro")
}

/// Takes the mount at `target` away; whoever uses it still keeps it until then.
pub fn detach(target: &Path) -> Result<()> {
    umount2(target, MntFlags::MNT_DETACH).called("umount")
}

/// Makes the mount at the working directory the root of this process and lets go of the old root.
pub fn enter_root() -> Result<()> {
    // The old root is stacked on the new one and taken off again, so no directory is needed for it.
    pivot_root(".", ".").called("pivot_root")?;
    umount2(".", MntFlags::MNT_DETACH).called("umount of the old root")?;
    chdir("/").called("chdir /")
}

/// A detached copy of the mounts at `source`, whose path holds no link: one that has been put there meanwhile is not
/// followed (`ELOOP`).
fn open_tree(source: &Path) -> Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    let place = openat2(AT_FDCWD, source, how).called("openat2")?;
    let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC | libc::AT_RECURSIVE | libc::AT_EMPTY_PATH;
    let empty = c"";
    // SAFETY: the kernel reads the empty path, which lives for ever; the descriptor is borrowed for the call.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_open_tree,
            place.as_raw_fd(),
            empty.as_ptr(),
            flags,
        )
    };
    let fd = answered("open_tree", answer)?;
    #[expect(clippy::cast_possible_truncation, reason = "a descriptor fits")]
    // SAFETY: the kernel has just made this descriptor for us alone.
    Ok(noted(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
}

fn set_attributes(tree: &OwnedFd, limits: Limits) -> Result<()> {
    let set = MOUNT_ATTR_NOSUID
        | match limits {
            Limits::ReadOnly => MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV,
            Limits::ReadWrite => MOUNT_ATTR_NODEV,
            Limits::Device => MOUNT_ATTR_NOEXEC,
        };
    let attributes = MountAttributes {
        set,
        clear: 0,
        propagation: 0,
        user_namespace: 0,
    };
    let empty = c"";
    let flags = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    // SAFETY: the kernel reads the empty path and `size_of` bytes of `attributes`; both live until the call returns.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            empty.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    };
    answered("mount_setattr", answer).map(drop)
}

fn move_mount(tree: &OwnedFd, target: &Path) -> Result<()> {
    let target = c_string(target);
    let empty = c"";
    // SAFETY: both paths are strings with their NUL that live until the call returns; the kernel only reads them.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            empty.as_ptr(),
            libc::AT_FDCWD,
            target.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    };
    answered("move_mount", answer).map(drop)
}

/// A path cannot hold a NUL when it came from the kernel or from a checked policy; one that does ends there.
fn c_string(path: &Path) -> CString {
    let bytes = path.as_os_str().as_bytes();
    CString::new(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).unwrap_or_default()
}

/// `struct mount_attr` of `mount_setattr(2)`.
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

const OPEN_TREE_CLONE: libc::c_int = 1;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 4;
const MOUNT_ATTR_RDONLY: u64 = 1;
const MOUNT_ATTR_NOSUID: u64 = 2;
const MOUNT_ATTR_NODEV: u64 = 4;
const MOUNT_ATTR_NOEXEC: u64 = 8;
