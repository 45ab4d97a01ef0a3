//! The handshake of a channel: three frames, by which each host proves to the other that it has the key, over both
//! nonces and the contents of both. Without I/O, clock and random numbers.
//!
//! ```text
//!  Initiator::new                                            Responder::new
//!     hello() ------------- HELLO ---------------------------> peer(): which key
//!     handle_answer() <---- HELLO_ANSWER --------------------- answer()
//!     Established --------- HELLO_PROOF ---------------------> handle_proof()
//!                                                              Established
//! ```
//!
//! The initiator may send other frames right after HELLO_PROOF. Each step consumes the state, so that no step can be
//! taken twice. On an error the channel is closed, after GOAWAY with [`Refused::reason`].

use hmac::Mac;
use thiserror::Error;

use crate::frame::Frame;
use crate::hello::{Hello, HelloAnswer, HelloProof, HmacSha256, HostId, Limits, Nonce, Proof};
use crate::key::Key;
use crate::kind::Kind;
use crate::reason::{Class, GoAwayReason};
use crate::violation::Violation;

/// Labels of the two proofs, of the same length, so that neither can replace the other.
const RESPONDER: &[u8; 32] = b"NetChannel 1 HELLO_ANSWER proof.";
const INITIATOR: &[u8; 32] = b"NetChannel 1 HELLO_PROOF proof..";

/// Why a handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// The bytes violate the protocol; for example, the versions differ.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// The peer refuses the channel. Not authenticated.
    #[error("the peer refuses the channel: {0}")]
    GoneAway(GoAwayReason),
    /// Not the frame that is due.
    #[error("{came} where {due} is due")]
    Unexpected {
        /// The received frame.
        came: Kind,
        /// The expected frame.
        due: Kind,
    },
    /// The peer claims to be this very host.
    #[error("the peer has this host's own identity: a host dialled itself, or two hosts share one")]
    Itself,
    /// This host's own nonce came back as the peer's.
    #[error("the peer sends this host's own words back")]
    Reflected,
    /// The answer belongs to another challenge.
    #[error("the peer answers another challenge: an old answer is played again")]
    Replayed,
    /// HELLO_ANSWER names another channel than HELLO.
    #[error("the peer answers for channel {class} {number}, which this is not")]
    OtherChannel {
        /// Its class.
        class: Class,
        /// Its number.
        number: u32,
    },
    /// The proof is wrong.
    #[error("the peer's proof is wrong: the two hosts have different keys")]
    WrongKey,
}

impl Refused {
    /// The reason that the peer is told; `None` if the peer has refused.
    #[must_use]
    pub const fn reason(&self) -> Option<GoAwayReason> {
        Some(match self {
            Self::Violation(violation) => violation.reason(),
            Self::GoneAway(_) => return None,
            Self::Unexpected { .. } | Self::OtherChannel { .. } => GoAwayReason::Violation,
            Self::Itself => GoAwayReason::Itself,
            Self::Reflected | Self::Replayed | Self::WrongKey => GoAwayReason::Authentication,
        })
    }
}

/// What a host states about itself to any peer, and a nonce for this channel alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The identity of the host.
    pub host: HostId,
    /// The epoch of its daemon.
    pub epoch: u64,
    /// Its limits.
    pub limits: Limits,
    /// Random, never used before.
    pub nonce: Nonce,
}

impl Identity {
    const fn hello(self, class: Class, number: u32) -> Hello {
        Hello {
            class,
            number,
            limits: self.limits,
            host: self.host,
            epoch: self.epoch,
            nonce: self.nonce,
        }
    }
}

/// A channel whose ends have authenticated each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Established {
    /// Class of the channel.
    pub class: Class,
    /// Number of the channel within its class.
    pub number: u32,
    /// The host that dialled it. Of two channels of the same class and number between the same hosts, that of the lower
    /// dialler is kept, see [`HostId::keeps`].
    pub dialler: HostId,
    /// The identity of the peer.
    pub peer: HostId,
    /// The epoch of the peer's daemon.
    pub epoch: u64,
    /// The peer's limits: this host's frames keep to them.
    pub limits: Limits,
}

/// The end that dialled, waiting for HELLO_ANSWER.
#[derive(Debug)]
pub struct Initiator {
    hello: Hello,
}

impl Initiator {
    /// Begins a channel.
    #[must_use]
    pub const fn new(identity: Identity, class: Class, number: u32) -> Self {
        Self {
            hello: identity.hello(class, number),
        }
    }

    /// The frame to send first.
    #[must_use]
    pub const fn hello(&self) -> Frame<'static> {
        Frame::Hello(self.hello)
    }

    /// Handles the first frame of the peer. Returns the HELLO_PROOF to send. The channel is open.
    ///
    /// # Errors
    /// The peer does not have the key, or refuses the channel.
    pub fn handle_answer(
        self,
        frame: &Frame<'_>,
        key: &Key,
    ) -> Result<(Frame<'static>, Established), Refused> {
        let ours = self.hello;
        let answer = match frame {
            Frame::HelloAnswer(answer) => answer,
            Frame::Hello(hello) if hello.nonce == ours.nonce => return Err(Refused::Reflected),
            other => return Err(unexpected(other, Kind::HelloAnswer)),
        };
        let theirs = answer.hello;
        check_identity(&ours, &theirs)?;
        if answer.challenge != ours.nonce {
            return Err(Refused::Replayed);
        }
        if (theirs.class, theirs.number) != (ours.class, ours.number) {
            let Hello { class, number, .. } = theirs;
            return Err(Refused::OtherChannel { class, number });
        }
        verify(code(key, RESPONDER, &ours, &theirs), answer.proof)?;
        let proof = HelloProof {
            challenge: theirs.nonce,
            proof: prove(code(key, INITIATOR, &ours, &theirs)),
        };
        let established = established(&theirs, ours.host);
        Ok((Frame::HelloProof(proof), established))
    }
}

/// The end that was dialled, waiting for HELLO_PROOF.
#[derive(Debug)]
pub struct Responder {
    ours: Hello,
    theirs: Hello,
}

impl Responder {
    /// Handles the first frame of a peer.
    ///
    /// # Errors
    /// It is not a HELLO, or this host's own.
    pub fn new(identity: Identity, frame: &Frame<'_>) -> Result<Self, Refused> {
        let Frame::Hello(theirs) = frame else {
            return Err(unexpected(frame, Kind::Hello));
        };
        let ours = identity.hello(theirs.class, theirs.number);
        check_identity(&ours, theirs)?;
        Ok(Self {
            ours,
            theirs: *theirs,
        })
    }

    /// The peer's statement. Nothing is proved yet: it serves to find the key.
    #[must_use]
    pub const fn peer(&self) -> &Hello {
        &self.theirs
    }

    /// The HELLO_ANSWER to send.
    #[must_use]
    pub fn answer(&self, key: &Key) -> Frame<'static> {
        Frame::HelloAnswer(HelloAnswer {
            hello: self.ours,
            challenge: self.theirs.nonce,
            proof: prove(code(key, RESPONDER, &self.theirs, &self.ours)),
        })
    }

    /// Handles the second frame of the peer. The channel is open.
    ///
    /// # Errors
    /// The peer does not have the key, or refuses the channel now.
    pub fn handle_proof(self, frame: &Frame<'_>, key: &Key) -> Result<Established, Refused> {
        let Frame::HelloProof(proof) = frame else {
            return Err(unexpected(frame, Kind::HelloProof));
        };
        if proof.challenge != self.ours.nonce {
            return Err(Refused::Replayed);
        }
        let code = code(key, INITIATOR, &self.theirs, &self.ours);
        verify(code, proof.proof)?;
        Ok(established(&self.theirs, self.theirs.host))
    }
}

fn unexpected(frame: &Frame<'_>, due: Kind) -> Refused {
    match frame {
        Frame::GoAway(reason) => Refused::GoneAway(*reason),
        other => Refused::Unexpected {
            came: other.kind(),
            due,
        },
    }
}

fn check_identity(ours: &Hello, theirs: &Hello) -> Result<(), Refused> {
    if theirs.nonce == ours.nonce {
        return Err(Refused::Reflected);
    }
    if theirs.host == ours.host {
        return Err(Refused::Itself);
    }
    Ok(())
}

const fn established(theirs: &Hello, dialler: HostId) -> Established {
    Established {
        class: theirs.class,
        number: theirs.number,
        dialler,
        peer: theirs.host,
        epoch: theirs.epoch,
        limits: theirs.limits,
    }
}

/// The code over a label and the contents of both hosts' frames. Each part has only one length.
fn code(key: &Key, label: &[u8; 32], initiator: &Hello, responder: &Hello) -> HmacSha256 {
    key.code()
        .chain_update(label)
        .chain_update(initiator.to_bytes())
        .chain_update(responder.to_bytes())
}

fn prove(code: HmacSha256) -> Proof {
    Proof(code.finalize().into_bytes().into())
}

/// Compares in constant time.
fn verify(code: HmacSha256, proof: Proof) -> Result<(), Refused> {
    code.verify(&proof.0.into()).map_err(|_| Refused::WrongKey)
}
