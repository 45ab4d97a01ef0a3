//! The connections of a worker, by number. A number is used again; a stamp never is.

use crate::connection::{Connection, State};
use crate::served::TenantNumber;
use netchannel_service::core_engine::Ticket;
use std::os::fd::OwnedFd;

/// The connections.
#[derive(Debug, Default)]
pub struct Table {
    connections: Vec<Option<Connection>>,
    unused: Vec<usize>,
    stamps: u64,
}

impl Table {
    /// Adds a connection.
    pub fn add(&mut self, tenant: TenantNumber, state: State, socket: OwnedFd) -> Ticket {
        self.stamps += 1;
        let stamp = self.stamps;
        let connection = Some(Connection::new(stamp, tenant, state, socket));
        let number = match self.unused.pop() {
            Some(number) => number,
            None => {
                self.connections.push(None);
                self.connections.len() - 1
            }
        };
        if let Some(place) = self.connections.get_mut(number) {
            *place = connection;
        }
        Ticket { number, stamp }
    }

    /// The one that has a number now.
    #[inline]
    pub fn at_mut(&mut self, number: usize) -> Option<&mut Connection> {
        self.connections.get_mut(number)?.as_mut()
    }

    /// The one of a ticket.
    pub fn get(&self, ticket: Ticket) -> Option<&Connection> {
        let connection = self.connections.get(ticket.number)?.as_ref()?;
        (connection.stamp == ticket.stamp).then_some(connection)
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Connection> {
        let connection = self.at_mut(ticket.number)?;
        (connection.stamp == ticket.stamp).then_some(connection)
    }

    /// The sockets of all.
    pub fn sockets(&self) -> impl Iterator<Item = &OwnedFd> {
        self.connections.iter().flatten().map(|one| &one.socket)
    }

    /// The numbers of a tenant's.
    pub fn of_tenant(&self, tenant: TenantNumber) -> Vec<usize> {
        let numbered = self.connections.iter().enumerate();
        numbered
            .filter(|(_, one)| one.as_ref().is_some_and(|one| one.tenant == tenant))
            .map(|(number, _)| number)
            .collect()
    }

    /// Takes one out.
    pub fn remove(&mut self, number: usize) -> Option<Connection> {
        let connection = self.connections.get_mut(number)?.take()?;
        self.unused.push(number);
        Some(connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    #[test]
    fn a_ticket_names_one_connection_only() {
        let mut table = Table::default();
        let first = table.add(0, State::Changing, socket());
        assert!(table.get(first).is_some() && table.of_tenant(0) == [0]);
        assert!(table.remove(first.number).is_some());
        assert!(table.remove(first.number).is_none() && table.of_tenant(0).is_empty());
        let second = table.add(0, State::Changing, socket());
        assert_eq!(first.number, second.number);
        assert!(table.get(first).is_none() && table.get_mut(second).is_some());
        assert!(table.at_mut(7).is_none());
    }
}
