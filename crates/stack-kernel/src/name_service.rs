//! Name service for programs' own resolvers: a tenant has no datagrams but these. They go to the operator's resolver, whomever the
//! program names, as those of `getaddrinfo` do; without one, where the tenant may reach.
//!
//! ```text
//!  program ==packets, each with its server's address==> end | worker | socket of the kernel's --UDP--> resolver
//! ```
//!
//! What finds no room is lost, as datagrams are: who asks asks again.

use crate::askers::{self, Server};
use crate::dialing::DNS;
use crate::own_names::asker_name;
use crate::served::{Served, TenantNumber};
use crate::worker::KernelWorker;
use netchannel_abi::address::Address;
use netchannel_configuration::Way;
use netchannel_service::addresses;
use netchannel_service::questions::{self, ROOM};
use netchannel_stack_process::counters::Counter;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// Datagrams of one end before the worker looks for other news.
const MOST_AT_ONCE: usize = 16;
/// The longest answer.
const MOST_ANSWER: usize = 1 << 16;

impl KernelWorker {
    /// A program of the present tenant asks.
    pub(crate) fn add_asker(&mut self, end: OwnedFd) {
        let tenant = self.current;
        // Where there are too many, the program's end is closed.
        let Some(number) = self.askers.add(tenant, end) else {
            return;
        };
        let name = asker_name(askers::number_of(number, None));
        let asker = self.askers.get_mut(number);
        if asker.is_none_or(|asker| self.cells.watch_own(&asker.end, name).is_err()) {
            self.askers.remove(number);
        }
        self.count_askers(tenant);
    }

    fn count_askers(&mut self, tenant: TenantNumber) {
        let count = self.askers.count(tenant);
        if let Some(served) = self.tenants.get_mut(tenant) {
            served.of_askers = count * askers::ENDS;
            served.count_descriptors();
        }
    }

    /// Something came at an end of an asker.
    pub(crate) fn on_datagrams(&mut self, number: u32) {
        let (number, place) = askers::of_number(number);
        match place {
            Some(place) => self.on_answers(number, place),
            None => self.on_questions(number),
        }
    }

    fn on_questions(&mut self, number: u32) {
        let Some(asker) = self.askers.get_mut(number) else {
            return;
        };
        let tenant = asker.tenant;
        let mut room = [0; ROOM + 1];
        for _ in 0..MOST_AT_ONCE {
            let served = self.tenants.get(tenant);
            let (Some(asker), Some(served)) = (self.askers.get_mut(number), served) else {
                return;
            };
            match rustix::net::recv(&asker.end, &mut room, RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN | Errno::INTR) => return,
                // Nobody has the program's end any more.
                Ok((0, _)) | Err(_) => {
                    self.askers.remove(number);
                    return self.count_askers(tenant);
                }
                Ok((length, _)) => {
                    let packet = room.get(..length).and_then(questions::read);
                    let Some((asked, question)) = packet else {
                        continue;
                    };
                    match served.server_of_names(&asked) {
                        Some(to) => self.ask((number, tenant), (&asked, to), question),
                        None => {
                            if let Some(answer) = askers::refusal(question) {
                                questions::answer(&asker.end, &asked, &answer);
                            }
                        }
                    }
                }
            }
        }
    }

    /// Sends a question to a server.
    fn ask(
        &mut self,
        (number, tenant): (u32, TenantNumber),
        (asked, to): (&Address, SocketAddr),
        question: &[u8],
    ) {
        let Some(asker) = self.askers.get_mut(number) else {
            return;
        };
        if asker.known(asked, to).is_none() {
            let Ok(socket) = askers::connect(to) else {
                return;
            };
            let place = asker.add(Server {
                asked: *asked,
                to,
                socket,
            });
            let name = asker_name(askers::number_of(number, Some(place)));
            let server = asker.server(place);
            if server.is_none_or(|one| self.cells.watch_own(&one.socket, name).is_err()) {
                return;
            }
        }
        if let Some(server) = asker.known(asked, to) {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let sent = rustix::net::send(&server.socket, question, flags);
            // An error is of an earlier datagram: that its server refused it.
            let sent = sent.or_else(|_| rustix::net::send(&server.socket, question, flags));
            self.count(tenant, Counter::BytesOut, sent.unwrap_or(0));
        }
    }

    fn on_answers(&mut self, number: u32, place: u8) {
        let mut room = vec![0; MOST_ANSWER];
        for _ in 0..MOST_AT_ONCE {
            let Some(asker) = self.askers.get_mut(number) else {
                return;
            };
            let Some(server) = asker.server(place) else {
                return;
            };
            match rustix::net::recv(&server.socket, &mut *room, RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) => return,
                // The server refuses, or can not be reached: who asks asks another one in time.
                Err(_) => {}
                Ok((length, _)) => {
                    let asked = server.asked;
                    let tenant = asker.tenant;
                    questions::answer(&asker.end, &asked, room.get(..length).unwrap_or_default());
                    self.count(tenant, Counter::BytesIn, length);
                }
            }
        }
    }

    fn count(&self, tenant: TenantNumber, counter: Counter, length: usize) {
        if let Some(served) = self.tenants.get(tenant) {
            let length = u64::try_from(length).unwrap_or(0);
            served.counters.add(counter, length);
        }
    }
}

impl Served {
    /// Who answers where a program asks this server.
    fn server_of_names(&self, asked: &Address) -> Option<SocketAddr> {
        let to = addresses::to_socket_address(&asked.unmapped());
        let to = to.filter(|to| to.port() == DNS)?;
        if self.tenant.resolver.is_some() {
            return self.tenant.resolver;
        }
        let own = self.tenant.address_like(to.ip())?;
        let is_led = self.tenant.way_to(to.ip()) != Way::None;
        let may = own != to.ip() && is_led && self.tenant.may_reach(to);
        if !may {
            self.counters.add(Counter::Denied, 1);
        }
        may.then_some(to)
    }
}
