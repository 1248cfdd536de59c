//! The boundary's life, from its fork to its end.
//!
//! ```text
//!  Waiting ── Mapped ──> Building ── the launcher has Built ──> Serving ── launcher, or keeper, is gone ──> end
//!                            └── a step fails: Fallen ──> end
//! ```
//!
//! The keeper whose going ends it is the process that forked it, or, for a lasting one, the last of a row ([`crate::grace`]).
//! While it builds it has one thread and forks the launcher; then it gives up what building needed, hires the broker's thread
//! and serves.

use std::fs::File;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use holdfast_kernel::descriptors;
use holdfast_kernel::execute::close_all_but;
use holdfast_kernel::fork::{Child, Forked, fork, leave};
use holdfast_kernel::handoff::{self, Received, Socket};
use holdfast_kernel::mount::{enter_root, make_private, make_read_only, mount_new};
use holdfast_kernel::netlink::loopback::{self, Captured, Own};
use holdfast_kernel::notify::Listener;
use holdfast_kernel::privilege::{
    Capabilities, bound_to, die_with_parent, keep_only, no_new_privileges,
};
use holdfast_kernel::seccomp::{Answer, Filter};
use holdfast_kernel::{Called, Error, landlock, sysctl};
use holdfast_observability::{Format, Journal, Level};
use holdfast_policy::{Cidr, OnLinkLoss};
use holdfast_wire::v1::from_launcher::Kind as Told;
use holdfast_wire::v1::handoff::Kind;
use holdfast_wire::v1::{self, FromLauncher, Handoff};
use nix::mount::MsFlags;
use nix::sched::CloneFlags;
use nix::sys::signal::Signal;
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, setsid};
use prost::Message;

use crate::Life;
use crate::fence::{Broken, Fence};
use crate::launcher::{self, Steps};
use crate::serve;
use crate::stock::Stock;
use crate::worker::Worker;

/// Everything the serving half needs.
pub(crate) struct Built {
    pub(crate) launcher: Child,
    pub(crate) channel: Socket,
    pub(crate) listener: Arc<Listener>,
    /// Where the broker works, under the same restraints as this thread: hired after they were laid down.
    pub(crate) worker: Worker,
    pub(crate) ports: Vec<u16>,
    /// Where connections to every other port are led, if they are.
    pub(crate) strays: Option<u16>,
    pub(crate) listed: Vec<Cidr>,
    pub(crate) stock: Stock,
    pub(crate) on_link_loss: OnLinkLoss,
    pub(crate) life: Life,
    pub(crate) evidence: v1::Evidence,
    pub(crate) steps: Vec<v1::Step>,
}

/// Builds and serves. Answers the process's status.
pub(crate) fn run(fence: &Fence, keeper: Socket, life: Life) -> i32 {
    match build(fence, &keeper, life) {
        Ok(built) => serve::run(built, keeper),
        Err(broken) => {
            let fallen = v1::Fallen {
                step: broken.step(),
                message: broken.message(),
            };
            let _ = hand(&keeper, Kind::Fallen(fallen), &[]);
            125
        }
    }
}

fn build(fence: &Fence, keeper: &Socket, life: Life) -> Result<Built, Broken> {
    let broken = |step| move |error| Broken::new(step, "", &error);
    let mut steps = Steps::default();
    steps.mark("");
    // What the caller had open is no business of anything in here.
    close_all_but(&kept(keeper, &life)).map_err(broken("let go of inherited descriptors"))?;
    wait_for_ids(keeper).map_err(broken("hear from the keeper"))?;
    settle(&life)?;
    steps.mark("make the namespaces");
    let clone3 = sysctl::apply(NO_USER_NAMESPACES).is_empty();
    let (launcher, channel) = fork_launcher(fence, clone3)?;
    if let Life::Lasting(lasts) = &life {
        // After the fork of the launcher, which has no log; and of this process, which is the one to be met at the door.
        Journal::start(Level::Info, Format::Json);
        lasts.door.listen().map_err(broken("listen for keepers"))?;
    }
    let unset = sysctl::apply(sysctl::NETWORK);
    let own = Own {
        v4: OWN_V4,
        v6: OWN_V6,
    };
    let captured = loopback::capture(own).map_err(broken("make every address local"))?;
    let (stock, strays) = open_stock(fence, own)?;
    steps.mark("make the network");
    let (listener, inner) = hear_built(&channel)?;
    steps.mark("wait for the launcher");
    confine_self().map_err(broken("confine the boundary"))?;
    let worker = Worker::hire("broker").map_err(broken("start the broker's thread"))?;
    steps.mark("confine the boundary");
    let evidence = v1::Evidence {
        scoped: inner.scoped,
        lacking: inner.lacking,
        unset: unset
            .iter()
            .map(|unset| unset.setting.name.to_owned())
            .collect(),
        ipv6: matches!(captured, Captured::Both),
        ..planned(fence)
    };
    let mut steps = steps.into_list();
    steps.extend(inner.steps.into_iter().map(|step| v1::Step {
        name: format!("launcher: {}", step.name),
        ..step
    }));
    let listener = Arc::new(listener);
    Ok(Built {
        launcher,
        channel,
        listener,
        worker,
        ports: fence.ports.clone(),
        strays,
        listed: fence.listed.clone(),
        stock,
        on_link_loss: fence.on_link_loss,
        life,
        evidence,
        steps,
    })
}

/// What is known of the fence before it is built.
fn planned(fence: &Fence) -> v1::Evidence {
    v1::Evidence {
        landlock_abi: if fence.landlock { landlock::abi() } else { 0 },
        seccomp: true,
        uid: fence
            .user
            .map_or_else(nix::unistd::geteuid, |(uid, _)| uid)
            .as_raw(),
        skipped: fence
            .view
            .left_out()
            .map(|(path, _)| path.display().to_string())
            .collect(),
        ..v1::Evidence::default()
    }
}

/// The descriptors that stay open, in ascending order.
fn kept(keeper: &Socket, life: &Life) -> Vec<i32> {
    let mut kept = vec![0, 1, 2, keeper.as_fd().as_raw_fd()];
    if let Life::Lasting(lasts) = life {
        kept.extend(
            [lasts.door.as_fd(), lasts.log.as_fd(), lasts.older.as_fd()].map(|fd| fd.as_raw_fd()),
        );
    }
    kept.sort_unstable();
    kept.dedup();
    kept
}

/// Binds its life to what it depends on, and its words to where they belong.
fn settle(life: &Life) -> Result<(), Broken> {
    let broken = |step| move |error| Broken::new(step, "", &error);
    match life {
        Life::Tied => die_with_parent(Signal::SIGKILL)
            .map_err(broken("bind its life to the keeper's"))
            .and_then(|()| be_quiet(None).map_err(broken(LET_GO))),
        Life::Lasting(lasts) => setsid()
            .called("setsid")
            .map_err(broken("leave the keeper's session"))
            .and_then(|_| be_quiet(Some(&lasts.log)).map_err(broken(LET_GO))),
    }
}

/// Sends one message to the keeper, its descriptors beside it.
pub(crate) fn hand(
    keeper: &Socket,
    kind: Kind,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Error> {
    keeper.send(&Handoff { kind: Some(kind) }.encode_to_vec(), descriptors)
}

/// Waits until the keeper has mapped this namespace's ids: before that nothing can be made in it.
fn wait_for_ids(keeper: &Socket) -> Result<(), Error> {
    match keeper.receive(&mut [0; 64])? {
        Received::Packet { .. } | Received::Exhausted { .. } => Ok(()),
        Received::Closed => Err(Error::new("recvmsg", libc::EPIPE)),
    }
}

/// The caller's input and output are its sessions' business. What goes wrong here is said on standard error: the caller's,
/// or the log of a lasting boundary.
fn be_quiet(log: Option<&File>) -> Result<(), Error> {
    let null = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .called("open /dev/null")?;
    dup2_stdin(null.as_fd()).called("dup2 0")?;
    dup2_stdout(log.unwrap_or(&null).as_fd()).called("dup2 1")?;
    match log {
        Some(log) => dup2_stderr(log.as_fd()).called("dup2 2"),
        None => Ok(()),
    }
}

fn fork_launcher(fence: &Fence, clone3: bool) -> Result<(Child, Socket), Broken> {
    let broken = |step| move |error| Broken::new(step, "", &error);
    let (ours, theirs) = handoff::pair().map_err(broken("make the launcher's socket"))?;
    let namespaces = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID;
    match fork(namespaces).map_err(broken("make the launcher's namespaces"))? {
        Forked::Child => {
            drop(ours);
            leave(launcher::run(fence, clone3, theirs))
        }
        Forked::Parent(child) => Ok((child, ours)),
    }
}

/// Opens what keepers serve in this network namespace. Answers where strays are led, too.
fn open_stock(fence: &Fence, own: Own) -> Result<(Stock, Option<u16>), Broken> {
    let stock = Stock::open().map_err(|error| Broken::new("listen on port 53", "", &error))?;
    for &port in &fence.ports {
        stock
            .listen(port)
            .map_err(|error| Broken::new("listen on port", port.to_string(), &error))?;
    }
    let strays = if fence.every_port {
        stock
            .take_strays(own, &fence.listed)
            .map_err(|error| Broken::new("listen for every port", "", &error))?
    } else {
        None
    };
    Ok((stock, strays))
}

/// Waits until the launcher has built its half of the fence.
fn hear_built(channel: &Socket) -> Result<(Listener, v1::Built), Broken> {
    let broken = |error| Broken::new("hear from the launcher", "", &error);
    let mut buffer = [0; 4096];
    let Received::Packet {
        length,
        descriptors,
    } = channel.receive(&mut buffer).map_err(broken)?
    else {
        return Err(broken(Error::new("recvmsg", libc::EPIPE)));
    };
    let told = FromLauncher::decode(&buffer[..length])
        .ok()
        .and_then(|told| told.kind);
    match (told, descriptors.into_iter().next()) {
        (Some(Told::Built(built)), Some(listener)) => Ok((Listener::new(listener), built)),
        (Some(Told::BuildFailed(failed)), _) => Err(Broken::told(failed.step, failed.message)),
        _ => Err(broken(Error::new("decode", libc::EPROTO))),
    }
}

/// Gives up what only the building needed: the host's files, every capability but those for looking at callers and for
/// ending them, and every call that makes something of this process.
fn confine_self() -> Result<(), Error> {
    make_private()?;
    let plain = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount_new("tmpfs", Path::new("/proc"), plain, "mode=755,size=64k")?;
    std::env::set_current_dir("/proc").called("chdir")?;
    std::fs::create_dir("proc").called("mkdir")?;
    mount_new("proc", Path::new("proc"), plain, "")?;
    enter_root()?;
    make_read_only(Path::new("/"), plain)?;
    let kept = Capabilities::PTRACE.and(Capabilities::KILL);
    bound_to(kept)?;
    keep_only(kept)?;
    no_new_privileges()?;
    let mut filter = Filter::new();
    for number in NEVER {
        filter.on(number, Answer::Refuse(1), &[]);
    }
    filter.install_refusals()?;
    descriptors::raise().map(drop)
}

const LET_GO: &str = "let go of the caller's input and output";

/// A limit of the new user namespace: with it no process inside can make another one, by whatever call.
const NO_USER_NAMESPACES: &[sysctl::Setting] = &[sysctl::Setting {
    name: "user/max_user_namespaces",
    value: "0",
}];

/// Calls that the boundary has no use for and an intruder would.
const NEVER: [libc::c_long; 12] = [
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_connect,
    libc::SYS_ptrace,
    libc::SYS_process_vm_writev,
    libc::SYS_mount,
    libc::SYS_move_mount,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_bpf,
    libc::SYS_keyctl,
    libc::SYS_io_uring_setup,
];

/// The addresses of the sandbox's own interface.
pub(crate) const OWN_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
pub(crate) const OWN_V6: Ipv6Addr = Ipv6Addr::new(0xfd48, 0x6f6c, 0x6466, 0x6173, 0, 0, 0, 1);
