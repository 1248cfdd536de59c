//! The connections that are relayed, so that a revised policy can end them.

use super::super::attempt::{
    Caller, Cookie, Fate, Judge, Judgement, Report, Ruling, Serial, name_of,
};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// What a connection was allowed for.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) cookie: Option<Cookie>,
    pub(super) caller: Caller,
    pub(super) destination: SocketAddr,
    /// Where its upstream is.
    pub(super) dialled: IpAddr,
}

/// By serial and by cookie.
#[derive(Debug, Default)]
pub(super) struct Connections {
    connections: HashMap<Serial, Connection>,
    cookies: HashMap<Cookie, Serial>,
}

impl Connections {
    pub(super) fn len(&self) -> usize {
        self.connections.len()
    }

    pub(super) fn insert(&mut self, serial: Serial, connection: Connection) {
        if let Some(cookie) = connection.cookie {
            self.cookies.insert(cookie, serial);
        }
        self.connections.insert(serial, connection);
    }

    pub(super) fn remove(&mut self, serial: Serial) -> Option<Connection> {
        let connection = self.connections.remove(&serial)?;
        if let Some(cookie) = connection.cookie
            && self.cookies.get(&cookie) == Some(&serial)
        {
            self.cookies.remove(&cookie);
        }
        Some(connection)
    }

    pub(super) fn of_cookie(&self, cookie: Cookie) -> Option<&Connection> {
        self.connections.get(self.cookies.get(&cookie)?)
    }

    /// Takes out the connections that the policy in force denies.
    pub(super) fn withdraw(&mut self, judge: &impl Judge) -> Vec<(Serial, Box<Report>)> {
        let judged = self.connections.iter().filter_map(|(serial, connection)| {
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
