//! The connections of a worker, by number. A number is used again; a stamp never is.

use crate::connection::{Connection, State};
use crate::meeting::Meeting;
use crate::served::TenantNumber;
use netchannel_service::core_engine::Ticket;
use std::os::fd::OwnedFd;

/// One of them.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are of the large kind; a box would be an allocation for each"
)]
enum Entry {
    /// With the network.
    Network(Connection),
    /// From lane to lane.
    Meeting(Box<Meeting>),
}

/// The connections. Those with the network have the plain names here.
#[derive(Debug, Default)]
pub struct Table {
    connections: Vec<Option<Entry>>,
    unused: Vec<usize>,
    stamps: u64,
}

impl Table {
    /// Adds a connection.
    pub fn add(&mut self, tenant: TenantNumber, state: State, socket: OwnedFd) -> Ticket {
        self.place(|stamp| Entry::Network(Connection::new(stamp, tenant, state, socket)))
    }

    /// Adds a connection from lane to lane.
    pub fn add_meeting(&mut self, tenants: [Option<TenantNumber>; 2]) -> Ticket {
        self.place(|stamp| Entry::Meeting(Box::new(Meeting::new(stamp, tenants))))
    }

    fn place(&mut self, make: impl FnOnce(u64) -> Entry) -> Ticket {
        self.stamps += 1;
        let stamp = self.stamps;
        let number = match self.unused.pop() {
            Some(number) => number,
            None => {
                self.connections.push(None);
                self.connections.len() - 1
            }
        };
        if let Some(place) = self.connections.get_mut(number) {
            *place = Some(make(stamp));
        }
        Ticket { number, stamp }
    }

    /// The one that has a number now.
    #[inline]
    pub fn at_mut(&mut self, number: usize) -> Option<&mut Connection> {
        match self.connections.get_mut(number)?.as_mut()? {
            Entry::Network(connection) => Some(connection),
            Entry::Meeting(_) => None,
        }
    }

    /// The connection between two tenants that has a number now.
    pub fn meeting_at_mut(&mut self, number: usize) -> Option<&mut Meeting> {
        match self.connections.get_mut(number)?.as_mut()? {
            Entry::Network(_) => None,
            Entry::Meeting(meeting) => Some(meeting),
        }
    }

    /// Whether the connection of a number waits for its turn, to change it.
    #[inline]
    pub fn queued_mut(&mut self, number: usize) -> Option<&mut bool> {
        match self.connections.get_mut(number)?.as_mut()? {
            Entry::Network(connection) => Some(&mut connection.queued),
            Entry::Meeting(meeting) => Some(&mut meeting.queued),
        }
    }

    /// The one of a ticket.
    pub fn get(&self, ticket: Ticket) -> Option<&Connection> {
        match self.connections.get(ticket.number)?.as_ref()? {
            Entry::Network(one) if one.stamp == ticket.stamp => Some(one),
            _ => None,
        }
    }

    /// The connection between two tenants of a ticket.
    pub fn meeting(&self, ticket: Ticket) -> Option<&Meeting> {
        match self.connections.get(ticket.number)?.as_ref()? {
            Entry::Meeting(one) if one.stamp == ticket.stamp => Some(one),
            _ => None,
        }
    }

    /// The same, to change it.
    pub fn meeting_mut(&mut self, ticket: Ticket) -> Option<&mut Meeting> {
        let meeting = self.meeting_at_mut(ticket.number)?;
        (meeting.stamp == ticket.stamp).then_some(meeting)
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Connection> {
        let connection = self.at_mut(ticket.number)?;
        (connection.stamp == ticket.stamp).then_some(connection)
    }

    /// The sockets of all.
    pub fn sockets(&self) -> impl Iterator<Item = &OwnedFd> {
        let network = self.connections.iter().filter_map(|one| match one {
            Some(Entry::Network(one)) => Some(one),
            _ => None,
        });
        network.map(|one| &one.socket)
    }

    /// The numbers of a tenant's.
    pub fn of_tenant(&self, tenant: TenantNumber) -> Vec<usize> {
        self.numbers(|one| matches!(one, Entry::Network(one) if one.tenant == tenant))
    }

    /// The numbers of its connections with other tenants.
    pub fn meetings_of(&self, tenant: TenantNumber) -> Vec<usize> {
        self.numbers(
            |one| matches!(one, Entry::Meeting(one) if one.tenants.contains(&Some(tenant))),
        )
    }

    fn numbers(&self, is_meant: impl Fn(&Entry) -> bool) -> Vec<usize> {
        let numbered = self.connections.iter().enumerate();
        numbered
            .filter(|(_, one)| one.as_ref().is_some_and(&is_meant))
            .map(|(number, _)| number)
            .collect()
    }

    /// Takes one out.
    pub fn remove(&mut self, number: usize) -> Option<Connection> {
        let is_meant = |one: &mut Entry| matches!(one, Entry::Network(_));
        let Entry::Network(connection) = self.connections.get_mut(number)?.take_if(is_meant)?
        else {
            return None;
        };
        self.unused.push(number);
        Some(connection)
    }

    /// A connection from lane to lane goes on with a socket: it keeps its number, its stamp and its place of the program.
    pub fn give_socket(&mut self, number: usize, state: State, socket: OwnedFd) -> bool {
        let Some(entry) = self.connections.get_mut(number).and_then(Option::as_mut) else {
            return false;
        };
        let Entry::Meeting(meeting) = entry else {
            return false;
        };
        let [Some(tenant), _] = meeting.tenants else {
            return false;
        };
        let mut connection = Connection::new(meeting.stamp, tenant, state, socket);
        (connection.place, connection.queued) = (meeting.places[0], meeting.queued);
        *entry = Entry::Network(connection);
        true
    }

    /// Takes a connection between two tenants out.
    pub fn remove_meeting(&mut self, number: usize) -> Option<Box<Meeting>> {
        let is_meant = |one: &mut Entry| matches!(one, Entry::Meeting(_));
        let Entry::Meeting(meeting) = self.connections.get_mut(number)?.take_if(is_meant)? else {
            return None;
        };
        self.unused.push(number);
        Some(meeting)
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

    #[test]
    fn connections_between_tenants_have_numbers_and_stamps_among_the_others() {
        let mut table = Table::default();
        let outside = table.add(0, State::Changing, socket());
        let met = table.add_meeting([Some(0), Some(1)]);
        assert_eq!(
            (outside.number, met.number, met.stamp),
            (0, 1, outside.stamp + 1)
        );
        assert!(table.get(met).is_none() && table.at_mut(1).is_none());
        assert!(table.meeting(outside).is_none() && table.meeting_mut(met).is_some());
        assert_eq!(
            (table.of_tenant(0), table.meetings_of(0)),
            (vec![0], vec![1])
        );
        assert_eq!(
            (table.of_tenant(1), table.meetings_of(1)),
            (vec![], vec![1])
        );
        assert!(table.remove(1).is_none() && table.remove_meeting(0).is_none());
        assert!(!std::mem::replace(table.queued_mut(1).unwrap(), true));
        assert!(table.remove_meeting(1).is_some_and(|one| one.queued));
        assert!(table.queued_mut(1).is_none() && table.remove(0).is_some());
    }

    #[test]
    fn who_gets_a_socket_stays_the_same_connection() {
        let mut table = Table::default();
        let ticket = table.add_meeting([Some(4), None]);
        let meeting = table.meeting_mut(ticket).unwrap();
        assert!(meeting.crosses());
        (meeting.places[0], meeting.queued) = (Some((1, 2)), true);
        assert_eq!(table.meetings_of(4), [ticket.number]);
        assert!(table.give_socket(ticket.number, State::Changing, socket()));
        let connection = table.get(ticket).unwrap();
        assert_eq!(
            (connection.tenant, connection.place, connection.queued),
            (4, Some((1, 2)), true)
        );
        assert!(table.meeting(ticket).is_none());
        assert!(!table.give_socket(ticket.number, State::Changing, socket()));
        assert!(!table.give_socket(9, State::Changing, socket()));
    }
}
