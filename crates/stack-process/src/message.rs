//! The messages of a session.
//!
//! | from CoreEngine | descriptors | says |
//! |---|---|---|
//! | Begin | counters | the first message: limits of the session |
//! | Tenant | | the table of the tenant, from now on |
//! | Keep | | the ports that are published now: all others are given up |
//! | Publish | one for each port that is bound already | some of them, which may be new |
//! | Gateway | | the listener that stands for all the world |
//! | Added, Removed | | a listener of the tenant |
//! | Core | those of a link | a [`Command`] |
//! | Drain | | no new connections: what is left ends by itself |
//!
//! | from the stack | descriptors | says |
//! |---|---|---|
//! | Request | an anchor, where one is offered | a [`StackRequest`] |
//! | Published | the socket, where it was bound | a port was bound, or could not be; CoreEngine keeps the socket, so that a restart refuses nobody |
//! | Door | | whether clients may come in at a published port by another way than the kernel, too |
//! | Drained | | the last connection has ended after Drain |

use crate::table::TenantTable;
use netchannel_abi::address::Address;
use netchannel_abi::link::{Layout, Role};
use netchannel_configuration::{Publish, Tenant};
use netchannel_service::core_engine::{
    AcceptMode, Command, ListenerChange, OwnListener, StackRequest, Ticket,
};
use netchannel_service::link::Parts;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;

/// The listener for which a stack asks for a link to the channels to other hosts. CoreEngine gives no other listener this number.
pub const CHANNELS: u32 = u32::MAX;

/// What a session may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionLimits {
    /// Anchors that the stack may hold.
    pub anchors: usize,
    /// Sockets that it may make.
    pub sockets: usize,
}

/// A message to a stack.
#[derive(Debug)]
pub enum Instruction {
    /// The first message: limits, and the memory of the counters.
    Begin(SessionLimits, OwnedFd),
    /// The table of the tenant.
    Tenant(Box<Tenant>),
    /// All ports that are published.
    Keep(Vec<Publish>),
    /// Some of them, with those sockets that are bound already: not more than a message has descriptors.
    Publish(Vec<(Publish, Option<OwnedFd>)>),
    /// The listener that stands for all the world.
    Gateway(u32),
    /// A listener of the tenant came or went.
    Listener(ListenerChange),
    /// A command of CoreEngine.
    Core(Command),
    /// No new connection is taken.
    Drain,
}

/// A message of a stack.
#[derive(Debug)]
pub enum Report {
    /// A request to CoreEngine.
    Request(StackRequest),
    /// A port was bound, or could not be.
    Published(Publish, Result<OwnedFd, Errno>),
    /// Whether clients may come in at a published port over channels, too.
    Door(Publish, bool),
    /// After [`Instruction::Drain`]: no connection is left.
    Drained,
}

/// An address in messages.
type Words = [u64; 3];

/// A link in messages; its descriptors are memory, channel, anchors.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct LinkText {
    number: u64,
    is_client: bool,
    slots: usize,
    arena: usize,
    anchors: usize,
    user: Option<u32>,
}

/// How a listener takes connections, in messages.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ModeText {
    shared: bool,
    backlog: usize,
    address: Option<Words>,
}

/// [`Instruction`] without its descriptors.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum InstructionText {
    Begin(SessionLimits),
    Tenant(Box<TenantTable>),
    Keep(Vec<String>),
    Publish(Vec<(String, bool)>),
    Gateway(u32),
    Added(u32, Words, bool, u32),
    Removed(u32),
    Drain,
    Serve(LinkText),
    Link(u32, Result<(LinkText, ModeText), i32>),
    Replaced(u32, u32),
    OfferLink(u32, Result<LinkText, i32>),
    Offered(usize, u64, Result<(), i32>),
    Mode(u32, ModeText),
    Closed(u32),
    Names,
}

/// [`Report`] without its descriptors.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ReportText {
    Link(u32, Words),
    OfferLink(u32),
    Offer {
        number: usize,
        stamp: u64,
        listener: u32,
        link: u64,
        slot: u32,
    },
    Forget(u64),
    Published(String, Result<(), i32>),
    Door(String, bool),
    Drained,
}

impl Instruction {
    /// As it is sent. `None` for [`Command::Stop`]: a session ends with its socket.
    pub(crate) fn pack(self) -> Option<(InstructionText, Vec<OwnedFd>)> {
        let mut with = Vec::new();
        let text = match self {
            Self::Begin(limits, counters) => {
                with.push(counters);
                InstructionText::Begin(limits)
            }
            Self::Tenant(tenant) => InstructionText::Tenant(Box::new((&*tenant).into())),
            Self::Keep(ports) => {
                InstructionText::Keep(ports.iter().map(ToString::to_string).collect())
            }
            Self::Publish(ports) => {
                let texts = ports.into_iter().map(|(port, socket)| {
                    let text = (port.to_string(), socket.is_some());
                    with.extend(socket);
                    text
                });
                InstructionText::Publish(texts.collect())
            }
            Self::Gateway(number) => InstructionText::Gateway(number),
            Self::Listener(ListenerChange::Added(number, one)) => {
                InstructionText::Added(number, one.address.to_words(), one.v6_only, one.defers)
            }
            Self::Listener(ListenerChange::Removed(number)) => InstructionText::Removed(number),
            Self::Drain => InstructionText::Drain,
            Self::Core(command) => pack_command(command, &mut with)?,
        };
        Some((text, with))
    }

    /// As it has come. `None` where text and descriptors do not fit together.
    pub(crate) fn unpack(text: InstructionText, with: Vec<OwnedFd>) -> Option<Self> {
        let mut with = with.into_iter();
        let message = match text {
            InstructionText::Begin(limits) => Self::Begin(limits, with.next()?),
            InstructionText::Tenant(table) => Self::Tenant(Box::new(table.into_tenant()?)),
            InstructionText::Keep(ports) => {
                let ports = ports.iter().map(|port| port.parse().ok());
                Self::Keep(ports.collect::<Option<_>>()?)
            }
            InstructionText::Publish(ports) => {
                let ports = ports.into_iter().map(|(port, has_socket)| {
                    let socket = if has_socket { Some(with.next()?) } else { None };
                    Some((port.parse().ok()?, socket))
                });
                Self::Publish(ports.collect::<Option<_>>()?)
            }
            InstructionText::Gateway(number) => Self::Gateway(number),
            InstructionText::Added(number, address, v6_only, defers) => {
                let own = OwnListener {
                    address: Address::from_words(address),
                    v6_only,
                    defers,
                };
                Self::Listener(ListenerChange::Added(number, own))
            }
            InstructionText::Removed(number) => Self::Listener(ListenerChange::Removed(number)),
            InstructionText::Drain => Self::Drain,
            command => Self::Core(unpack_command(command, &mut with)?),
        };
        with.next().is_none().then_some(message)
    }
}

impl Report {
    /// As it is sent.
    pub(crate) fn pack(self) -> (ReportText, Vec<OwnedFd>) {
        let mut with = Vec::new();
        let text = match self {
            Self::Request(StackRequest::Link(listener, to)) => {
                ReportText::Link(listener, to.to_words())
            }
            Self::Request(StackRequest::OfferLink(listener)) => ReportText::OfferLink(listener),
            Self::Request(StackRequest::Offer {
                ticket: Ticket { number, stamp },
                listener,
                link,
                slot,
                anchor,
            }) => {
                with.push(anchor);
                ReportText::Offer {
                    number,
                    stamp,
                    listener,
                    link,
                    slot,
                }
            }
            Self::Request(StackRequest::Forget(link)) => ReportText::Forget(link),
            Self::Published(port, bound) => {
                let bound = bound.map(|socket| with.push(socket));
                ReportText::Published(port.to_string(), bound.map_err(Errno::raw_os_error))
            }
            Self::Door(port, is_open) => ReportText::Door(port.to_string(), is_open),
            Self::Drained => ReportText::Drained,
        };
        (text, with)
    }

    /// As it has come. `None` where text and descriptors do not fit together.
    pub(crate) fn unpack(text: ReportText, with: Vec<OwnedFd>) -> Option<Self> {
        let mut with = with.into_iter();
        let message = match text {
            ReportText::Link(listener, to) => {
                Self::Request(StackRequest::Link(listener, Address::from_words(to)))
            }
            ReportText::OfferLink(listener) => Self::Request(StackRequest::OfferLink(listener)),
            ReportText::Offer {
                number,
                stamp,
                listener,
                link,
                slot,
            } => Self::Request(StackRequest::Offer {
                ticket: Ticket { number, stamp },
                listener,
                link,
                slot,
                anchor: with.next()?,
            }),
            ReportText::Forget(link) => Self::Request(StackRequest::Forget(link)),
            ReportText::Published(port, Ok(())) => {
                Self::Published(port.parse().ok()?, Ok(with.next()?))
            }
            ReportText::Published(port, Err(code)) => {
                Self::Published(port.parse().ok()?, Err(errno(code)))
            }
            ReportText::Door(port, is_open) => Self::Door(port.parse().ok()?, is_open),
            ReportText::Drained => Self::Drained,
        };
        with.next().is_none().then_some(message)
    }
}

fn pack_command(command: Command, with: &mut Vec<OwnedFd>) -> Option<InstructionText> {
    let code = Errno::raw_os_error;
    Some(match command {
        Command::Serve(parts) => InstructionText::Serve(pack_link(parts, with)),
        Command::Link(listener, answer) => {
            let answer = answer.map(|(parts, mode)| (pack_link(parts, with), mode.into()));
            InstructionText::Link(listener, answer.map_err(code))
        }
        Command::ListenerReplaced { from, to } => InstructionText::Replaced(from, to),
        Command::OfferLink(listener, answer) => {
            let answer = answer.map(|(parts, channel)| {
                let text = pack_link(parts, with);
                with.push(channel);
                text
            });
            InstructionText::OfferLink(listener, answer.map_err(code))
        }
        Command::Offered(Ticket { number, stamp }, answer) => {
            InstructionText::Offered(number, stamp, answer.map_err(code))
        }
        Command::AcceptMode(listener, mode) => InstructionText::Mode(listener, mode.into()),
        Command::ListenerClosed(listener) => InstructionText::Closed(listener),
        Command::Names(end) => {
            with.push(end);
            InstructionText::Names
        }
        Command::Stop => return None,
    })
}

fn unpack_command(
    text: InstructionText,
    with: &mut impl Iterator<Item = OwnedFd>,
) -> Option<Command> {
    Some(match text {
        InstructionText::Serve(link) => Command::Serve(unpack_link(link, with)?),
        InstructionText::Link(listener, Ok((link, mode))) => {
            Command::Link(listener, Ok((unpack_link(link, with)?, mode.into())))
        }
        InstructionText::Link(listener, Err(code)) => Command::Link(listener, Err(errno(code))),
        InstructionText::Replaced(from, to) => Command::ListenerReplaced { from, to },
        InstructionText::OfferLink(listener, Ok(link)) => {
            let parts = unpack_link(link, with)?;
            Command::OfferLink(listener, Ok((parts, with.next()?)))
        }
        InstructionText::OfferLink(listener, Err(code)) => {
            Command::OfferLink(listener, Err(errno(code)))
        }
        InstructionText::Offered(number, stamp, answer) => {
            Command::Offered(Ticket { number, stamp }, answer.map_err(errno))
        }
        InstructionText::Mode(listener, mode) => Command::AcceptMode(listener, mode.into()),
        InstructionText::Closed(listener) => Command::ListenerClosed(listener),
        InstructionText::Names => Command::Names(with.next()?),
        _ => return None,
    })
}

fn errno(code: i32) -> Errno {
    Errno::from_raw_os_error(code)
}

fn pack_link(parts: Parts, with: &mut Vec<OwnedFd>) -> LinkText {
    let text = LinkText {
        number: parts.number,
        is_client: matches!(parts.role, Role::Client),
        slots: parts.layout.slots,
        arena: parts.layout.arena,
        anchors: parts.anchors.len(),
        user: parts.user,
    };
    with.extend([parts.memory, parts.channel]);
    with.extend(parts.anchors);
    text
}

fn unpack_link(text: LinkText, with: &mut impl Iterator<Item = OwnedFd>) -> Option<Parts> {
    let parts = Parts {
        number: text.number,
        role: if text.is_client {
            Role::Client
        } else {
            Role::Server
        },
        layout: Layout {
            slots: text.slots,
            arena: text.arena,
        },
        memory: with.next()?,
        channel: with.next()?,
        anchors: with.take(text.anchors).collect(),
        user: text.user,
    };
    (parts.anchors.len() == text.anchors).then_some(parts)
}

impl From<AcceptMode> for ModeText {
    fn from(mode: AcceptMode) -> Self {
        Self {
            shared: mode.shared,
            backlog: mode.backlog,
            address: mode.address.map(|address| address.to_words()),
        }
    }
}

impl From<ModeText> for AcceptMode {
    fn from(text: ModeText) -> Self {
        Self {
            shared: text.shared,
            backlog: text.backlog,
            address: text.address.map(Address::from_words),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netchannel_service::played;

    fn file() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    fn there(message: Instruction) -> Option<Instruction> {
        let (text, with) = message.pack()?;
        let text = serde_json::to_string(&text).unwrap();
        Instruction::unpack(serde_json::from_str(&text).unwrap(), with)
    }

    fn back(message: Report) -> Option<Report> {
        let (text, with) = message.pack();
        let text = serde_json::to_string(&text).unwrap();
        Report::unpack(serde_json::from_str(&text).unwrap(), with)
    }

    /// Without the numbers of descriptors, which differ.
    fn shown(message: &impl std::fmt::Debug) -> String {
        let text = format!("{message:?}");
        let parts = text.split("OwnedFd { fd: ").enumerate();
        parts
            .map(|(place, part)| match place {
                0 => part,
                _ => part.trim_start_matches(|one: char| one.is_ascii_digit()),
            })
            .collect()
    }

    #[test]
    fn instructions_are_the_same_on_the_other_side() {
        let layout = Layout {
            slots: 64,
            arena: 1 << 22,
        };
        let link = || played::parts(Some(7), layout).0;
        let mode = AcceptMode {
            shared: true,
            backlog: 5,
            address: Some(Address::v4([10, 0, 0, 1], 80)),
        };
        let address = Address::v6([3; 16], 80, 2);
        let port: Publish = "[::1]:8080:80".parse().unwrap();
        let limits = SessionLimits {
            anchors: 3,
            sockets: 4,
        };
        let ticket = Ticket {
            number: 3,
            stamp: u64::MAX,
        };
        let tenant = Tenant::new("web", vec![[10, 88, 0, 2].into()]);
        let make: [&dyn Fn() -> Instruction; 18] = [
            &|| Instruction::Begin(limits, file()),
            &|| Instruction::Tenant(Box::new(tenant.clone())),
            &|| Instruction::Keep(vec![port, port]),
            &|| Instruction::Publish(vec![(port, None), (port, Some(file())), (port, None)]),
            &|| Instruction::Gateway(9),
            &|| {
                Instruction::Listener(ListenerChange::Added(
                    3,
                    OwnListener {
                        address,
                        v6_only: true,
                        defers: 7,
                    },
                ))
            },
            &|| Instruction::Listener(ListenerChange::Removed(3)),
            &|| Instruction::Drain,
            &|| Instruction::Core(Command::Serve(link())),
            &|| Instruction::Core(Command::Link(3, Ok((link(), mode)))),
            &|| Instruction::Core(Command::Link(3, Err(Errno::CONNREFUSED))),
            &|| Instruction::Core(Command::ListenerReplaced { from: 3, to: 4 }),
            &|| Instruction::Core(Command::OfferLink(3, Ok((link(), file())))),
            &|| Instruction::Core(Command::OfferLink(3, Err(Errno::AGAIN))),
            &|| Instruction::Core(Command::Offered(ticket, Err(Errno::AGAIN))),
            &|| Instruction::Core(Command::AcceptMode(3, mode)),
            &|| Instruction::Core(Command::ListenerClosed(3)),
            &|| Instruction::Core(Command::Names(file())),
        ];
        for make in make {
            let message = make();
            let expected = shown(&message);
            assert_eq!(shown(&there(message).unwrap()), expected);
            // A descriptor more, or one less.
            let (text, mut with) = make().pack().unwrap();
            with.push(file());
            assert!(Instruction::unpack(text, with).is_none(), "{expected}");
            let (text, mut with) = make().pack().unwrap();
            if with.pop().is_some() {
                assert!(Instruction::unpack(text, with).is_none(), "{expected}");
            }
        }
        assert!(there(Instruction::Core(Command::Stop)).is_none());
    }

    #[test]
    fn reports_are_the_same_on_the_other_side() {
        let port: Publish = "127.0.0.1:8080:80".parse().unwrap();
        let ticket = Ticket {
            number: 1,
            stamp: 2,
        };
        let make: [&dyn Fn() -> Report; 8] = [
            &|| Report::Request(StackRequest::Link(3, Address::v4([10, 0, 0, 1], 80))),
            &|| Report::Request(StackRequest::OfferLink(3)),
            &|| {
                Report::Request(StackRequest::Offer {
                    ticket,
                    listener: 3,
                    link: 4,
                    slot: 5,
                    anchor: file(),
                })
            },
            &|| Report::Request(StackRequest::Forget(u64::MAX)),
            &|| Report::Published(port, Ok(file())),
            &|| Report::Published(port, Err(Errno::ADDRINUSE)),
            &|| Report::Door(port, true),
            &|| Report::Drained,
        ];
        for make in make {
            let message = make();
            let expected = shown(&message);
            assert_eq!(shown(&back(message).unwrap()), expected);
            let (text, mut with) = make().pack();
            with.push(file());
            assert!(Report::unpack(text, with).is_none(), "{expected}");
        }
    }
}
