//! The connections that are relayed, so that a revised policy can end them.

use super::super::attempt::{Caller, Fate, Judge, Judgement, Report, Ruling, Serial, name_of};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// What a connection was allowed for.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) caller: Caller,
    pub(super) destination: SocketAddr,
    /// Where its upstream is.
    pub(super) dialled: IpAddr,
}

/// By serial.
#[derive(Debug, Default)]
pub(super) struct Connections(HashMap<Serial, Connection>);

impl Connections {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn insert(&mut self, serial: Serial, connection: Connection) {
        self.0.insert(serial, connection);
    }

    pub(super) fn remove(&mut self, serial: Serial) {
        self.0.remove(&serial);
    }

    /// Takes out the connections that the policy in force denies.
    pub(super) fn withdraw(&mut self, judge: &impl Judge) -> Vec<(Serial, Box<Report>)> {
        let judged = self.0.iter().filter_map(|(serial, connection)| {
            let Connection {
                caller,
                destination,
                dialled,
                ..
            } = connection;
            let Judgement { target, ruling } = judge.judge(*destination, &caller.identity);
            let denied = match ruling {
                Ruling::Allowed(grant) => judge.admits(&grant, *dialled).err()?,
                Ruling::Denied(denied) => denied,
            };
            let (caller, destination) = (caller.clone(), Some(*destination));
            let (host, fate) = (name_of(&target), Fate::Withdrawn(denied));
            Some((
                *serial,
                Box::new(Report {
                    caller,
                    destination,
                    host,
                    allowed: None,
                    fate,
                }),
            ))
        });
        let withdrawn: Vec<_> = judged.collect();
        for (serial, _) in &withdrawn {
            self.remove(*serial);
        }
        withdrawn
    }
}
