//! The decoder of frames. Checks of the header alone are in `header`.

use netchannel_abi::address::Address;
use netchannel_abi::handle::Handle;

use super::{
    Addresses, Fin, Frame, Listen, ListenEnd, NcRst, NcSyn, NcSynAck, NoSocket, Rst, Unlisten,
    Urgent, Window,
};
use crate::address::{self, AddressList};
use crate::bytes::{take, u32_at, u64_at};
use crate::header::Header;
use crate::hello::{Hello, HelloAnswer, HelloProof};
use crate::kind::{Kind, flags};
use crate::layout::{
    goaway, listen, listen_end, ncrst, ncsyn, ncsyn_ack, rst, unlisten, urgent, window,
};
use crate::reason::{Class, GoAwayReason, Refusal, ResetReason};
use crate::violation::Violation;

/// Decodes a frame from its checked header and its whole payload.
pub(crate) fn decode<'a>(header: &Header, payload: &'a [u8]) -> Result<Frame<'a>, Violation> {
    let Header {
        kind,
        flags,
        handle,
        sequence,
        ..
    } = *header;
    Ok(match kind {
        Kind::Hello => Frame::Hello(Hello::decode(kind, payload)?),
        Kind::HelloAnswer => Frame::HelloAnswer(HelloAnswer::decode(payload)?),
        Kind::HelloProof => Frame::HelloProof(HelloProof::decode(payload)),
        Kind::GoAway => {
            let code = u32_at(payload, goaway::REASON);
            Frame::GoAway(GoAwayReason::from_code(code).ok_or(unknown(kind, code))?)
        }
        Kind::Ping => Frame::Ping(sequence),
        Kind::Pong => Frame::Pong(sequence),
        Kind::NcSyn => Frame::NcSyn(decode_ncsyn(handle, payload)?),
        Kind::NcSynAck => Frame::NcSynAck(decode_ncsyn_ack(handle, payload)?),
        Kind::NcRst => {
            let code = u32_at(payload, ncrst::REASON);
            let reason = Refusal::from_code(code).ok_or(unknown(kind, code))?;
            Frame::NcRst(NcRst { handle, reason })
        }
        Kind::Window => {
            let (filled, limit) = (sequence, u64_at(payload, window::LIMIT));
            if limit < filled {
                return Err(Violation::NegativeWindow { filled, limit });
            }
            Frame::Window(Window {
                handle,
                filled,
                limit,
                fin: flags & flags::FIN != 0,
                ask: flags & flags::ASK != 0,
                again: flags & flags::AGAIN != 0,
            })
        }
        Kind::Fin => Frame::Fin(Fin { handle, sequence }),
        Kind::Urgent => {
            let first = u64_at(payload, urgent::FIRST);
            if sequence <= first {
                return Err(Violation::NegativeRow { first, sequence });
            }
            Frame::Urgent(Urgent {
                handle,
                sequence,
                first,
            })
        }
        Kind::Rst => {
            let code = u32_at(payload, rst::REASON);
            let reason = ResetReason::from_code(code).ok_or(unknown(kind, code))?;
            Frame::Rst(Rst { handle, reason })
        }
        Kind::NoSocket => Frame::NoSocket(NoSocket { handle }),
        Kind::Addresses => {
            let list =
                AddressList::new(payload).map_err(|number| Violation::NotAnAddressOf { number })?;
            Frame::Addresses(Addresses {
                serial: sequence,
                list,
            })
        }
        Kind::Listen => Frame::Listen(Listen {
            serial: sequence,
            listener: listener(kind, u32_at(payload, listen::LISTENER))?,
            address: address_at(kind, "address", payload, listen::ADDRESS)?,
            v6_only: flags & flags::V6_ONLY != 0,
        }),
        Kind::Unlisten => Frame::Unlisten(Unlisten {
            serial: sequence,
            listener: listener(kind, u32_at(payload, unlisten::LISTENER))?,
        }),
        Kind::ListenEnd => {
            let (serial, first) = (sequence, u64_at(payload, listen_end::FIRST));
            if serial < first {
                return Err(Violation::NegativeList { first, serial });
            }
            Frame::ListenEnd(ListenEnd { serial, first })
        }
        // The parser handles DATA itself.
        Kind::Data => return Err(Violation::NotOpen { kind }),
    })
}

fn decode_ncsyn(handle: Handle, payload: &[u8]) -> Result<NcSyn, Violation> {
    let kind = Kind::NcSyn;
    let reserved: [u8; 3] = take(payload, ncsyn::RESERVED);
    if reserved != [0; 3] {
        let field = "reserved";
        return Err(Violation::NotZero { kind, field });
    }
    let [code] = take(payload, ncsyn::CLASS);
    let class = Class::from_code(code);
    if class.is_none() && code != 0 {
        return Err(Violation::UnknownCode {
            kind,
            field: "class",
            code: u32::from(code),
        });
    }
    Ok(NcSyn {
        handle,
        client: address_at(kind, "client", payload, ncsyn::CLIENT)?,
        server: address_at(kind, "server", payload, ncsyn::SERVER)?,
        limit: u64_at(payload, ncsyn::LIMIT),
        listener: u32_at(payload, ncsyn::LISTENER),
        class,
    })
}

fn decode_ncsyn_ack(handle: Handle, payload: &[u8]) -> Result<NcSynAck, Violation> {
    let responder = Handle {
        index: u32_at(payload, ncsyn_ack::INDEX),
        generation: u32_at(payload, ncsyn_ack::GENERATION),
    };
    if responder.generation == 0 {
        let kind = Kind::NcSynAck;
        return Err(Violation::NoGeneration { kind });
    }
    Ok(NcSynAck {
        handle,
        responder,
        limit: u64_at(payload, ncsyn_ack::LIMIT),
    })
}

fn listener(kind: Kind, number: u32) -> Result<u32, Violation> {
    match number {
        0 => Err(Violation::OutOfRange {
            kind,
            field: "listener",
            value: 0,
        }),
        _ => Ok(number),
    }
}

fn address_at(
    kind: Kind,
    field: &'static str,
    payload: &[u8],
    at: usize,
) -> Result<Address, Violation> {
    address::from_bytes(&take(payload, at)).ok_or(Violation::NotAnAddress { kind, field })
}

const fn unknown(kind: Kind, code: u32) -> Violation {
    Violation::UnknownCode {
        kind,
        field: "reason",
        code,
    }
}
