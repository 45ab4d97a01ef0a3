//! Arbitrary frames from arbitrary bytes.

use netchannel_wire::{
    Address, Class, DataHeader, Fin, Frame, GoAwayReason, HEADER, Handle, Hello, HelloAnswer,
    HelloProof, HostId, LEAST_PAYLOAD, Limits, Listen, ListenEnd, MOST_FIXED_FRAME, MOST_PAYLOAD,
    NcRst, NcSyn, NcSynAck, NoSocket, Nonce, Parser, Proof, Refusal, ResetReason, Rst, Unlisten,
    Urgent, Window, encode_addresses, encode_data_header,
};

use super::{Event, MOST};

/// Reads decisions from arbitrary bytes; when they have run out, every decision is 0.
pub struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn rest(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.0).to_vec()
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn flag(&mut self) -> bool {
        self.byte().is_multiple_of(2)
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        core::array::from_fn(|_| self.byte())
    }

    fn half(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }

    pub fn word(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }

    fn handle(&mut self) -> Handle {
        Handle {
            index: self.half(),
            generation: self.half().max(1),
        }
    }

    fn address(&mut self) -> Address {
        match self.byte() % 2 {
            0 => Address::v4(self.bytes(), u16::from_le_bytes(self.bytes())),
            _ => Address::v6(self.bytes(), u16::from_le_bytes(self.bytes()), 0),
        }
    }

    fn hello(&mut self) -> Hello {
        Hello {
            class: self.one_of(Class::ALL),
            number: self.half(),
            limits: Limits {
                payload: self.half().clamp(LEAST_PAYLOAD, MOST_PAYLOAD),
                sockets: self.half().max(1),
                silence: self.half().max(1),
            },
            host: HostId(u128::from(self.word()).max(1).to_le_bytes()),
            epoch: self.word(),
            nonce: Nonce(self.bytes()),
        }
    }

    fn handshake(&mut self) -> Frame<'static> {
        match self.byte() % 3 {
            0 => Frame::Hello(self.hello()),
            1 => Frame::HelloAnswer(HelloAnswer {
                hello: self.hello(),
                challenge: Nonce(self.bytes()),
                proof: Proof(self.bytes()),
            }),
            _ => Frame::HelloProof(HelloProof {
                challenge: Nonce(self.bytes()),
                proof: Proof(self.bytes()),
            }),
        }
    }

    fn frame(&mut self, choice: u8) -> Frame<'static> {
        match choice {
            0 => Frame::Ping(self.word()),
            1 => Frame::Pong(self.word()),
            2 => Frame::NcSyn(NcSyn {
                handle: self.handle(),
                client: self.address(),
                server: self.address(),
                limit: self.word(),
                listener: self.half(),
                class: self.one_of(&[None, Some(Class::Latency), Some(Class::Throughput)]),
            }),
            3 => Frame::NcSynAck(NcSynAck {
                handle: self.handle(),
                responder: self.handle(),
                limit: self.word(),
            }),
            4 => Frame::NcRst(NcRst {
                handle: self.handle(),
                reason: self.one_of(Refusal::ALL),
            }),
            5 => {
                let (one, other) = (self.word(), self.word());
                Frame::Window(Window {
                    handle: self.handle(),
                    filled: one.min(other),
                    limit: one.max(other),
                    fin: self.flag(),
                    ask: self.flag(),
                    again: self.flag(),
                })
            }
            6 => Frame::Fin(Fin {
                handle: self.handle(),
                sequence: self.word(),
            }),
            7 => {
                let (one, other) = (self.word(), self.word());
                Frame::Urgent(Urgent {
                    handle: self.handle(),
                    sequence: one.max(other).max(1),
                    first: one.min(other).min(one.max(other).saturating_sub(1)),
                })
            }
            8 => Frame::Rst(Rst {
                handle: self.handle(),
                reason: self.one_of(ResetReason::ALL),
            }),
            9 => Frame::NoSocket(NoSocket {
                handle: self.handle(),
            }),
            10 => Frame::Listen(Listen {
                serial: self.word(),
                listener: self.half().max(1),
                address: self.address(),
                v6_only: self.flag(),
            }),
            11 => Frame::Unlisten(Unlisten {
                serial: self.word(),
                listener: self.half().max(1),
            }),
            _ => {
                let (one, other) = (self.word(), self.word());
                Frame::ListenEnd(ListenEnd {
                    serial: one.max(other),
                    first: one.min(other),
                })
            }
        }
    }

    fn data(&mut self, bytes: &mut Vec<u8>) -> Event {
        let length = 1 + self.half()
            % if self.byte().is_multiple_of(4) {
                MOST
            } else {
                100
            };
        let data = DataHeader {
            handle: self.handle(),
            sequence: self.word().min(u64::MAX - u64::from(length)),
            length,
        };
        let mut header = [0; HEADER];
        encode_data_header(&mut header, &data);
        bytes.extend(header);
        let fill = self.byte();
        let payload: Vec<u8> = (0..=u8::MAX)
            .cycle()
            .map(|byte| byte ^ fill)
            .take(length as usize)
            .collect();
        bytes.extend(&payload);
        Event::Data {
            handle: data.handle,
            sequence: data.sequence,
            length: payload.len(),
            payload,
        }
    }

    fn addresses(&mut self, bytes: &mut Vec<u8>) -> Event {
        let serial = self.word();
        let all: Vec<Address> = (0..self.byte()).map(|_| self.address()).collect();
        let mut buffer = [0; Parser::LEAST_BUFFER];
        let length = encode_addresses(serial, &all, &mut buffer).unwrap();
        bytes.extend(&buffer[..length]);
        Event::Frame(buffer[..length].to_vec())
    }
}

/// The bytes of a well-formed channel, and what a reader must get from them.
pub fn channel(source: &mut Source<'_>, open: bool) -> (Vec<u8>, Vec<Event>) {
    let (mut bytes, mut events) = (Vec::new(), Vec::new());
    let say = |frame: Frame<'_>, bytes: &mut Vec<u8>| {
        let mut buffer = [0; MOST_FIXED_FRAME];
        let length = frame.encode(&mut buffer).unwrap();
        bytes.extend(&buffer[..length]);
        Event::Frame(buffer[..length].to_vec())
    };
    let mut opened = open;
    while !source.is_empty() {
        events.push(match source.byte() % 19 {
            _ if !opened => {
                let frame = source.handshake();
                opened = matches!(frame, Frame::HelloProof(_));
                say(frame, &mut bytes)
            }
            choice @ 0..=12 => {
                let frame = source.frame(choice);
                say(frame, &mut bytes)
            }
            13 => source.addresses(&mut bytes),
            _ => source.data(&mut bytes),
        });
    }
    events.push(say(
        Frame::GoAway(source.one_of(GoAwayReason::ALL)),
        &mut bytes,
    ));
    (bytes, events)
}
