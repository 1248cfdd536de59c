//! One sandbox, as its spec describes it.
//!
//! The launch token is not kept: a boundary that is forked, and its builtins, are copies of this process, and must not find
//! it there. It is read again when they are no longer made.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_boundary::fence;
use holdfast_keeper::{Assignment, Home, Unread};
use holdfast_kernel::descriptors::Spares;
use holdfast_policy::{OnLinkLoss, Policy};
use holdfast_wire::shared::{
    BOUNDARY_PID, BOUNDARY_SOCKET, KEEPER_PID, KEEPER_SOCKET, NAMES, SPEC, log,
};
use holdfast_wire::v1;
use prost::Message as _;
use serde_json::json;

use crate::failure::{Failure, Kind};
use crate::policy::source;

/// A spec, checked.
#[derive(Debug)]
pub(super) struct Sandbox {
    /// The keeper's directory.
    pub(super) place: PathBuf,
    pub(super) id: String,
    pub(super) name: String,
    pub(super) generation: u64,
    pub(super) epoch: u64,
    pub(super) reconnects: u64,
    pub(super) policy: Policy,
    pub(super) on_link_loss: OnLinkLoss,
    pub(super) rootfs: Option<PathBuf>,
    /// Where sessions start, as it is called in the view.
    pub(super) directory: PathBuf,
    /// What `include_workdir` means.
    pub(super) workdir: PathBuf,
    /// The caller's own limit, soft and hard.
    pub(super) descriptors: Option<(u64, u64)>,
    revision: u64,
    environment: Vec<Vec<u8>>,
    program: Vec<Vec<u8>>,
    gateway: PathBuf,
    state: PathBuf,
    chaos: bool,
}

impl Sandbox {
    /// Reads `DIR/spec`.
    pub(super) fn read(place: &Path) -> Result<Self, Failure> {
        let unread = |error: &(dyn std::error::Error + 'static)| {
            let what = format!("read {}", place.join(SPEC).display());
            Failure::caused(Kind::Internal, what, error)
        };
        let mut bytes = bytes_of(place).map_err(|error| unread(&error))?;
        let decoded = v1::Spec::decode(bytes.as_slice());
        wipe(&mut bytes);
        let mut spec = decoded.map_err(|error| unread(&error))?;
        wipe(&mut spec.token);
        Self::of(place, spec)
    }

    fn of(place: &Path, spec: v1::Spec) -> Result<Self, Failure> {
        let request = spec.request.unwrap_or_default();
        let revision = spec.policy.unwrap_or_default();
        let path = |bytes: Vec<u8>| PathBuf::from(std::ffi::OsString::from_vec(bytes));
        let rootfs = (!request.rootfs.is_empty()).then(|| path(request.rootfs));
        let callers = path(request.workdir);
        let directory = if request.directory.is_empty() {
            callers.clone()
        } else {
            callers.join(path(request.directory))
        };
        // As `run` has it: in a root of its own the caller's directory is not meant.
        let workdir = if rootfs.is_some() {
            directory.clone()
        } else {
            callers
        };
        let written = parse(&revision.yaml)?;
        let on_link_loss = match request.on_link_loss.as_str() {
            "continue" => OnLinkLoss::Continue,
            "freeze" => OnLinkLoss::Freeze,
            _ => written.on_link_loss(),
        };
        let (soft, hard) = (request.descriptors_soft, request.descriptors_hard);
        Ok(Self {
            place: place.to_owned(),
            id: spec.id,
            name: request.name,
            generation: spec.generation,
            epoch: spec.epoch,
            reconnects: spec.reconnects,
            policy: source::follow_links(written, rootfs.as_deref()),
            on_link_loss,
            rootfs,
            directory,
            workdir,
            descriptors: (soft > 0).then_some((soft, hard.max(soft))),
            revision: revision.revision,
            environment: request.environment,
            program: request.arguments,
            gateway: path(spec.gateway),
            state: path(spec.state),
            chaos: spec.chaos,
        })
    }

    /// What proves to the boundary that this is its keeper.
    pub(super) fn token(&self) -> io::Result<Vec<u8>> {
        let spec = v1::Spec::decode(bytes_of(&self.place)?.as_slice());
        spec.map(|spec| spec.token).map_err(io::Error::other)
    }

    /// Where the gateway and its keepers have files and sockets of their own.
    pub(super) fn own_places(&self) -> Vec<PathBuf> {
        // A gateway has a place for each sandbox below `sandboxes`, and its own things beside that.
        let whole = |place: &Path| {
            let sandboxes = place.parent()?;
            let gateways = sandboxes.parent()?;
            (sandboxes.file_name()? == "sandboxes").then(|| gateways.to_owned())
        };
        let mut places = [&self.place, &self.state]
            .map(|place| whole(place).unwrap_or_else(|| place.clone()))
            .to_vec();
        if !places.iter().any(|base| self.gateway.starts_with(base)) {
            places.push(self.gateway.clone());
        }
        places
    }

    /// The boundary's own socket.
    pub(super) fn door(&self) -> PathBuf {
        self.place.join(BOUNDARY_SOCKET)
    }

    /// Where the names' addresses are kept.
    pub(super) fn names(&self) -> PathBuf {
        self.place.join(NAMES)
    }

    /// One of the sandbox's logs.
    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.state.join(name)
    }

    /// What the keeper is told.
    pub(super) fn assignment(&self, spares: Arc<Spares>) -> Assignment {
        let rootfs = self.rootfs.clone();
        Assignment {
            id: self.id.clone(),
            generation: self.generation,
            revision: self.revision,
            socket: self.place.join(KEEPER_SOCKET),
            log: self.log(log::WORKLOAD),
            gateway: self.gateway.clone(),
            home: Home {
                directory: self.directory.clone(),
                environment: self.environment.clone(),
            },
            program: self.program.clone(),
            spares,
            read: Arc::new(move |text| {
                let policy = parse(text).map_err(|failure| Unread::Invalid(failure.sentence()))?;
                fence::admit(&policy).map_err(|unfit| Unread::Unsupported(unfit.to_string()))?;
                Ok(source::follow_links(policy, rootfs.as_deref()))
            }),
            chaos: self.chaos,
        }
    }

    /// Where the boundary's process is written down.
    pub(super) fn boundary_pid(&self) -> PathBuf {
        self.place.join(BOUNDARY_PID)
    }

    /// Removes what a sandbox that is over has no use for. The directory is the gateway's.
    pub(super) fn clean(&self) {
        for name in [
            KEEPER_SOCKET,
            BOUNDARY_SOCKET,
            NAMES,
            KEEPER_PID,
            BOUNDARY_PID,
        ] {
            let _it_was_not_there = fs::remove_file(self.place.join(name));
        }
    }
}

/// The policy in `text`; the standard one when there is none.
fn parse(text: &str) -> Result<Policy, Failure> {
    if text.trim().is_empty() {
        return Ok(Policy::standard());
    }
    Policy::parse("policy", text).map_err(|invalid| {
        let count = invalid.problems.len();
        let noun = if count == 1 { "problem" } else { "problems" };
        Failure::new(
            Kind::PolicyInvalid,
            format!("the policy has {count} {noun}"),
        )
        .lines(invalid.problems.iter().map(ToString::to_string))
        .details(json!({"problems": invalid.problems}))
    })
}

/// The whole file, in memory that is allocated once.
fn bytes_of(place: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(place.join(SPEC))?;
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(0);
    let mut bytes = Vec::with_capacity(length.saturating_add(1));
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Leaves nothing of them in memory.
fn wipe(bytes: &mut Vec<u8>) {
    bytes.fill(0);
    // Read, as far as the compiler knows: so they are written.
    std::hint::black_box(&*bytes);
    bytes.clear();
}
