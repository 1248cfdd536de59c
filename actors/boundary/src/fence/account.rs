//! Whom a workload runs as: the names and numbers of the policy, looked up in the sandbox's root.

use holdfast_policy::{Account, Policy};
use nix::unistd::{Gid, Uid};

use super::{Host, Unplanned};

/// Whom the workload runs as; `None` for the caller, under any name: only root can become anybody, even himself.
pub(super) fn user(policy: &Policy, host: &Host) -> Result<Option<(Uid, Gid)>, Unplanned> {
    let process = policy.process();
    let number = |key, file, account: &Option<Account>| {
        account
            .as_ref()
            .map(|account| lookup(host, key, file, account))
            .transpose()
    };
    let uid = number("run_as_user", PASSWD, &process.run_as_user)?;
    let gid = number("run_as_group", GROUP, &process.run_as_group)?;
    if uid.is_none() && gid.is_none() {
        return Ok(None);
    }
    let wanted = |id: Option<u32>, own: u32| id.filter(|id| *id != own);
    let foreign = [
        ("run_as_user", wanted(uid, host.uid.as_raw())),
        ("run_as_group", wanted(gid, host.gid.as_raw())),
    ];
    if !host.uid.is_root() {
        let foreign = foreign.into_iter().find_map(|(key, id)| Some((key, id?)));
        return foreign.map_or(Ok(None), |(key, wanted)| {
            Err(Unplanned::User { key, wanted })
        });
    }
    let gid = match (gid, &process.run_as_user) {
        (None, Some(account)) if uid != Some(host.uid.as_raw()) => Some(group_of(host, account)?),
        (gid, _) => gid,
    };
    Ok(Some((
        uid.map_or(host.uid, Uid::from_raw),
        gid.map_or(host.gid, Gid::from_raw),
    )))
}

/// The number of `account`, itself or by a line of `file` in the sandbox's root.
fn lookup(
    host: &Host,
    key: &'static str,
    file: &'static str,
    account: &Account,
) -> Result<u32, Unplanned> {
    match account {
        Account::Id(id) => Ok(*id),
        Account::Name(name) => number_of(host, file, account, 2).ok_or(Unplanned::UnknownUser {
            key,
            wanted: name.clone(),
            file,
        }),
    }
}

/// The group that a user has by his line in the sandbox's root. Nobody is given another one unasked: see
/// [decision 0037](../../../../docs/decisions/0037-take-no-group-unasked.md).
fn group_of(host: &Host, user: &Account) -> Result<u32, Unplanned> {
    number_of(host, PASSWD, user, 3).ok_or_else(|| {
        Unplanned::NoGroup(match user {
            Account::Id(id) => id.to_string(),
            Account::Name(name) => name.clone(),
        })
    })
}

/// The number in `column` of the line that `file` in the sandbox's root has for `account`.
fn number_of(host: &Host, file: &str, account: &Account, column: usize) -> Option<u32> {
    let text = std::fs::read_to_string(host.root.join(file.trim_start_matches('/'))).ok()?;
    let mut entries = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let own = entries.find(|fields| match account {
        Account::Name(name) => fields.first() == Some(&name.as_str()),
        Account::Id(id) => fields.get(2).and_then(|field| field.parse().ok()) == Some(*id),
    });
    own?.get(column)?.parse().ok()
}

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";

#[cfg(test)]
mod tests;
