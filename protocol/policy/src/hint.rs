//! Says in one sentence what to write so that what was denied is allowed.

use std::net::IpAddr;

use crate::address::{Class, canonical};
use crate::cidr::Cidr;
use crate::expand::scalar;
use crate::glob::Glob;
use crate::network::DNS;
use crate::request::{Destination, Request};
use crate::rule::{Endpoint, Ports, Rule};
use crate::verdict::{Allowed, Reason};

/// For a rule that is for the host, but not for the port or the program.
pub(crate) fn for_rule(
    rule: &Rule,
    endpoint: &Endpoint,
    request: &Request<'_>,
    reason: Reason,
) -> String {
    let key = &rule.key;
    if let Some(never) = for_port(request.port).filter(|_| reason == Reason::PortNotAllowed) {
        return never.to_owned();
    }
    match (reason, &endpoint.ports, request.identity.executable()) {
        (Reason::PortNotAllowed, Ports::Listed(ports), _) => {
            let mut ports = ports.clone();
            ports.insert(request.port);
            format!(
                "write `ports: [{}]` at `{}` in rule `{key}`",
                Ports::Listed(ports),
                endpoint.host
            )
        }
        (Reason::BinaryNotAllowed, _, Some(path)) => {
            let path = scalar(&Glob::of_literal(path));
            format!("add `{{path: {path}}}` to `binaries` of rule `{key}`")
        }
        _ => format!(
            "the program cannot be observed, and rule `{key}` names `binaries`: add a rule for `{}` without them",
            endpoint.host
        ),
    }
}

/// For a host that no rule is for.
pub(crate) fn for_host(nearest: Option<(&Rule, &Endpoint)>, request: &Request<'_>) -> String {
    let host = match &request.destination {
        Destination::Name(name) if name.is_localhost() => {
            return format!(
                "`{name}` is the sandbox's own loopback and needs no rule; to reach the host's, choose another name and give it `127.0.0.1` under `resolver.hosts`"
            );
        }
        Destination::Name(name) => name.to_string(),
        Destination::Address(address) => canonical(*address).to_string(),
    };
    if let Some(never) = for_port(request.port) {
        return never.to_owned();
    }
    let endpoint = format!("`{{host: \"{host}\", port: {}}}`", request.port);
    match nearest {
        Some((rule, near)) => format!(
            "add {endpoint} to `endpoints` of rule `{}`, whose `{}` does not cover it",
            rule.key, near.host
        ),
        None => format!("add {endpoint} to `endpoints` of a rule in `network_policies`"),
    }
}

/// For a port that no rule can name.
fn for_port(port: u16) -> Option<&'static str> {
    match port {
        0 => Some("there is no port 0: connect to the port that is meant"),
        DNS => Some(
            "port 53 is answered by the sandbox's own resolver, which needs no rule; other resolvers cannot be reached",
        ),
        _ => None,
    }
}

/// For an address that nothing opens.
pub(crate) fn for_refused(address: IpAddr, class: Class) -> String {
    match class {
        Class::Loopback => format!(
            "{address} is a loopback address: to reach the host's own, add an endpoint with `allowed_ips: [{}]`",
            Cidr::host(address)
        ),
        Class::Public
        | Class::Private
        | Class::LinkLocal
        | Class::Metadata
        | Class::Multicast
        | Class::Unspecified
        | Class::Broadcast
        | Class::Reserved => format!(
            "{address} is {} {class} address, which no rule can open",
            class.article()
        ),
    }
}

/// For an address to which an allowed connection may not go.
pub(crate) fn for_address(
    allowed: &Allowed,
    address: IpAddr,
    class: Class,
    reason: Reason,
) -> String {
    let (host, rule) = (&allowed.destination, &allowed.rule);
    match (reason, class) {
        (Reason::AddressNotListed, _) => {
            format!(
                "`{host}` is at {address}, which is {class}: add it to `allowed_ips` of that endpoint in rule `{rule}`"
            )
        }
        (Reason::AddressPrivate, _) => format!(
            "`{host}` is at {address}, which is private: write the host exactly, or add `allowed_ips: [{}]`, in rule `{rule}`",
            Cidr::host(address)
        ),
        (_, Class::Loopback) => format!(
            "`{host}` is at {address}, which is the host's loopback: give it that address under `resolver.hosts` if it is meant"
        ),
        _ => for_refused(address, class),
    }
}
