//! Builds what [`view`](super::view) has planned: the mounts first, then the rules on them.
//!
//! It runs in the launcher, in a mount namespace of its own, while the host's files are still there. The new root is put
//! together on `/proc`, whose host version nothing in a view is taken from.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use holdfast_kernel::landlock::{Builder, Grant, Rules};
use holdfast_kernel::mount::{
    Limits, bind, detach, enter_root, make_private, make_read_only, mount_new,
};
use nix::mount::MsFlags;
use nix::sys::stat::{Mode, umask};
use nix::sys::statvfs::{FsFlags, statvfs};

use super::view::{Access, Addition, DEVICES, View};
use super::{Broken, Fence};

/// Mounts the view and makes it the root of this process. Answers what the view does without.
pub(crate) fn enter(view: &View, root: bool) -> Result<Option<String>, Broken> {
    // What the view is made of has one mode, whatever the caller's own files get; theirs is the programs' again.
    let callers = umask(Mode::S_IWGRP | Mode::S_IWOTH);
    let entered = build(view, root);
    umask(callers);
    entered
}

fn build(view: &View, root: bool) -> Result<Option<String>, Broken> {
    make_private().map_err(|error| Broken::new("make mounts private", "/", &error))?;
    let plain = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mounted("tmpfs", Path::new(STAGE), plain, "mode=755,size=16m")?;
    std::env::set_current_dir(STAGE).map_err(|error| Broken::io("enter", STAGE, &error))?;
    own_directories(view)?;
    let mut lacking = None;
    for (path, access) in view.mounts() {
        let limits = match access {
            Access::Read => Limits::ReadOnly,
            Access::Write => Limits::ReadWrite,
        };
        bound(&view.source(path), path, limits)?;
        let addition = view.addition.as_ref();
        if let Some(addition) = addition.filter(|addition| addition.directory == path) {
            lacking = add(addition)?;
        }
    }
    for (link, target) in &view.links {
        // What the policy lists wins over a link of the same name.
        let _ = symlink(target, inside(link));
    }
    for (path, text) in &view.covers {
        replace(view, path, text)?;
    }
    for path in &view.hidden {
        cover(path)?;
    }
    sentinel()?;
    enter_root().map_err(|error| Broken::new("enter the view", "/", &error))?;
    if root {
        protect_kernel_files()?;
    }
    make_read_only(Path::new("/"), plain)
        .map_err(|error| Broken::new("make the view's root read-only", "/", &error))?;
    Ok(lacking)
}

/// The rules that say once more, by Landlock, what the mounts say; none where the kernel has no Landlock.
pub(crate) fn rules(fence: &Fence) -> Result<Option<Rules>, Broken> {
    if !fence.landlock {
        return Ok(None);
    }
    let view = &fence.view;
    let start =
        Builder::new().map_err(|error| Broken::new("start the Landlock rules", "", &error))?;
    let own = [
        ("/", Grant::List),
        ("/proc", Grant::Write),
        ("/dev", Grant::Read),
        ("/dev/pts", Grant::Write),
        ("/dev/shm", Grant::Write),
        ("/dev/mqueue", Grant::Write),
        ("/tmp", Grant::Write),
    ];
    let own = own
        .iter()
        .map(|(path, grant)| (PathBuf::from(path), *grant));
    // A mount that is read-only does not keep a device from being written to.
    let usual = DEVICES.map(|name| (Path::new("/dev").join(name), Grant::Write));
    let covers = view.covers.keys().map(|path| (path.clone(), Grant::Read));
    let entries = view.entries.iter().chain(&view.devices);
    let entries = entries.map(|(path, access)| {
        let grant = match access {
            Access::Read => Grant::Read,
            Access::Write => Grant::Write,
        };
        (path.clone(), grant)
    });
    own.chain(usual)
        .chain(covers)
        .chain(entries)
        .try_fold(start, |rules, (path, grant)| {
            rules
                .grant(&path, grant)
                .map_err(|error| Broken::new("add a Landlock rule", &path, &error))
        })?
        .finish()
        .map(Some)
        .map_err(|error| Broken::new("finish the Landlock rules", "", &error))
}

/// What a sandbox has of its own: `/proc`, `/dev`, `/tmp`.
fn own_directories(view: &View) -> Result<(), Broken> {
    let plain = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    for directory in ["proc", "dev", "dev/pts", "dev/shm", "dev/mqueue", "tmp"] {
        fs::create_dir(directory).map_err(|error| Broken::io("make", directory, &error))?;
    }
    mounted("proc", Path::new("proc"), plain | MsFlags::MS_NOEXEC, "")?;
    for device in DEVICES {
        let path = Path::new("/dev").join(device);
        bound(&path, &path, Limits::Device)?;
    }
    for device in view.devices.keys() {
        bound(&view.source(device), device, Limits::Device)?;
    }
    let quiet = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    mounted(
        "devpts",
        Path::new("dev/pts"),
        quiet,
        "newinstance,ptmxmode=0666,mode=0620",
    )?;
    mounted("tmpfs", Path::new("dev/shm"), plain, "mode=1777")?;
    mounted("tmpfs", Path::new("tmp"), plain, "mode=1777")?;
    // Message queues are files of this, whether it is mounted or not: only what is mounted can stand in a Landlock rule.
    let queues = Path::new("dev/mqueue");
    if let Err(error) = mount_new("mqueue", queues, quiet | plain, "")
        // A kernel without message queues.
        && error.errno() != libc::ENODEV
    {
        return Err(Broken::new("mount on", queues, &error));
    }
    for (link, target) in DEVICE_LINKS {
        symlink(target, link).map_err(|error| Broken::io("link", link, &error))?;
    }
    Ok(())
}

/// Mounts a file that says `text` over that of the root, or puts it where the view has none.
fn replace(view: &View, path: &Path, text: &str) -> Result<(), Broken> {
    let target = inside(path);
    if view.covering(path).is_none() {
        make_parents(&target)?;
        // Nothing that is there is written to, whatever the plan says: in the view there may be the kernel's files and devices.
        return File::create_new(&target)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|error| Broken::io("write", path, &error));
    }
    let staged = Path::new(".cover");
    fs::write(staged, text).map_err(|error| Broken::io("write", staged, &error))?;
    bind(staged, &target, Limits::ReadOnly)
        .map_err(|error| Broken::new("mount the sandbox's own file on", path, &error))?;
    // The mount keeps the file; its first name is of no more use.
    fs::remove_file(staged).map_err(|error| Broken::io("remove", staged, &error))
}

/// Mounts on a directory that is bound already an overlay of itself and of a file that it lacks. Where this kernel or that
/// file system allows none, the directory stays as it is, and that is answered in a sentence.
fn add(addition: &Addition) -> Result<Option<String>, Broken> {
    let Addition {
        directory,
        file,
        text,
    } = addition;
    let plain = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    // A file system of its own, so that its name can go: the overlay keeps it.
    let layer = Path::new(STAGE).join(LAYER);
    fs::create_dir(&layer).map_err(|error| Broken::io("make", &layer, &error))?;
    mounted("tmpfs", &layer, plain, "mode=755,size=64k")?;
    let target = layer.join(file);
    make_parents(&target)?;
    fs::write(&target, text).map_err(|error| Broken::io("write", file, &error))?;
    // Named by the working directory, a path needs no escapes.
    let enter = |path: &Path| {
        std::env::set_current_dir(path).map_err(|error| Broken::io("enter", path, &error))
    };
    enter(&inside(directory))?;
    let flags = plain | MsFlags::MS_RDONLY | not_executable();
    // What is there comes first: the directory keeps its owner and its mode.
    let both = format!("lowerdir=.:{}", layer.display());
    let added = mount_new("overlay", Path::new("."), flags, &both);
    enter(Path::new(STAGE))?;
    // A mount of its own stays, whatever is made of that name outside.
    let added = added.and_then(|()| {
        let place = inside(directory).join(file);
        bind(&target, &place, Limits::ReadOnly)
    });
    detach(&layer).map_err(|error| Broken::new("let go of", &layer, &error))?;
    fs::remove_dir(&layer).map_err(|error| Broken::io("remove", &layer, &error))?;
    let lacking = added.err().map(|error| {
        format!(
            "the sandbox has no /etc/resolv.conf, since its root has none and this host adds none to {} ({}): put an empty {} there",
            directory.display(),
            error.told(),
            file.display(),
        )
    });
    Ok(lacking)
}

/// The flag of the mount at the working directory that an overlay on it does not take over.
fn not_executable() -> MsFlags {
    let kept = statvfs(".").is_ok_and(|known| known.flags().contains(FsFlags::ST_NOEXEC));
    if kept {
        MsFlags::MS_NOEXEC
    } else {
        MsFlags::empty()
    }
}

/// Puts something empty over what must not be seen.
fn cover(path: &Path) -> Result<(), Broken> {
    let target = inside(path);
    if !target.is_dir() {
        return bound(Path::new("/dev/null"), path, Limits::Device);
    }
    let plain = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mounted("tmpfs", &target, plain, "mode=555,size=4k,nr_inodes=1")?;
    make_read_only(&target, plain).map_err(|error| Broken::new("cover up", path, &error))
}

/// A file that the mounts show and Landlock does not: the proof tries to read it.
fn sentinel() -> Result<(), Broken> {
    let path = inside(Path::new(SENTINEL));
    fs::write(
        &path,
        "This can be read only where Landlock is not in force.\n",
    )
    .and_then(|()| fs::set_permissions(&path, PermissionsExt::from_mode(0o444)))
    .map_err(|error| Broken::io("write", SENTINEL, &error))
}

/// Root without capabilities still owns the kernel's own files in `/proc`: what is not about a process of the sandbox, and
/// the launcher, can be read and not written.
fn protect_kernel_files() -> Result<(), Broken> {
    for name in KERNEL_FILES {
        let path = Path::new("/proc").join(name);
        if path.exists() {
            bind(&path, &path, Limits::ReadOnly)
                .map_err(|error| Broken::new("protect", &path, &error))?;
        }
    }
    Ok(())
}

fn mounted(kind: &'static str, at: &Path, flags: MsFlags, options: &str) -> Result<(), Broken> {
    mount_new(kind, at, flags, options).map_err(|error| Broken::new("mount on", at, &error))
}

/// Binds `source` to the place of `path` in the new root, making that place first.
fn bound(source: &Path, path: &Path, limits: Limits) -> Result<(), Broken> {
    let target = inside(path);
    make_parents(&target)?;
    let is_directory = fs::metadata(source)
        .map_err(|error| Broken::io("look at", source, &error))?
        .is_dir();
    let made = if is_directory {
        fs::create_dir(&target)
    } else {
        touch(&target)
    };
    existing(made).map_err(|error| Broken::io("make a place for", path, &error))?;
    bind(source, &target, limits).map_err(|error| Broken::new("bind", path, &error))
}

fn make_parents(target: &Path) -> Result<(), Broken> {
    let Some(parent) = target.parent() else {
        return Ok(());
    };
    existing(fs::create_dir_all(parent)).map_err(|error| Broken::io("make", parent, &error))
}

fn touch(path: &Path) -> io::Result<()> {
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .map(drop)
}

/// What is there already need not be made; nor need it be where the mount below is read-only.
fn existing(made: io::Result<()>) -> io::Result<()> {
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// A path of the view while the view is being put together in the working directory.
fn inside(path: &Path) -> PathBuf {
    path.strip_prefix("/").unwrap_or(path).to_owned()
}

/// Read by the proof, which must fail to.
pub(crate) const SENTINEL: &str = "/.fence";

const STAGE: &str = "/proc";

/// Where what is added to a directory stands until the overlay has it.
const LAYER: &str = ".layer";

const DEVICE_LINKS: [(&str, &str); 5] = [
    ("dev/ptmx", "pts/ptmx"),
    ("dev/fd", "/proc/self/fd"),
    ("dev/stdin", "/proc/self/fd/0"),
    ("dev/stdout", "/proc/self/fd/1"),
    ("dev/stderr", "/proc/self/fd/2"),
];

const KERNEL_FILES: [&str; 11] = [
    "1",
    "sys",
    "sysrq-trigger",
    "irq",
    "bus",
    "fs",
    "acpi",
    "scsi",
    "kcore",
    "timer_list",
    "keys",
];
