//! Where every field of every frame lies. Encoders and decoders use these offsets, and a test
//! compares them with the tables of `docs/wire-format.md`.

/// A field: its name, its offset in bytes from the start of its structure, and its size in bytes.
pub type Field = (&'static str, usize, usize);

/// Lays fields one behind the other: a constant offset for each, the size, and a list for the test.
macro_rules! layout {
    ($(#[$meta:meta])* $name:ident { $($field:ident: $size:expr,)+ }) => {
        $(#[$meta])*
        pub mod $name {
            layout!(@offsets 0; $($field: $size,)+);
            /// All fields, in order.
            pub const FIELDS: &[super::Field] =
                &[$((stringify!($field), $field, $size)),+];
        }
    };
    (@offsets $offset:expr;) => {
        /// Bytes of the whole.
        pub const SIZE: usize = $offset;
    };
    (@offsets $offset:expr; $field:ident: $size:expr, $($rest:tt)*) => {
        #[doc = concat!("Offset of `", stringify!($field), "`.")]
        pub const $field: usize = $offset;
        layout!(@offsets $offset + $size; $($rest)*);
    };
}

layout! {
    /// The header of every frame.
    header {
        KIND: 1,
        FLAGS: 1,
        RESERVED: 2,
        LENGTH: 4,
        INDEX: 4,
        GENERATION: 4,
        SEQUENCE: 8,
    }
}

layout! {
    /// An address within a payload.
    address {
        FAMILY: 2,
        PORT: 2,
        BYTES: 16,
    }
}

layout! {
    /// Payload of HELLO.
    hello {
        MAGIC: 8,
        VERSION: 4,
        CLASS: 1,
        RESERVED: 3,
        NUMBER: 4,
        PAYLOAD: 4,
        SOCKETS: 4,
        SILENCE: 4,
        HOST: 16,
        EPOCH: 8,
        NONCE: 32,
    }
}

layout! {
    /// Payload of HELLO_ANSWER.
    hello_answer {
        HELLO: crate::layout::hello::SIZE,
        CHALLENGE: 32,
        PROOF: 32,
    }
}

layout! {
    /// Payload of HELLO_PROOF.
    hello_proof {
        CHALLENGE: 32,
        PROOF: 32,
    }
}

layout! {
    /// Payload of GOAWAY.
    goaway {
        REASON: 4,
    }
}

layout! {
    /// Payload of NCSYN.
    ncsyn {
        CLIENT: crate::layout::address::SIZE,
        SERVER: crate::layout::address::SIZE,
        LIMIT: 8,
        LISTENER: 4,
        CLASS: 1,
        RESERVED: 3,
    }
}

layout! {
    /// Payload of NCSYN_ACK.
    ncsyn_ack {
        INDEX: 4,
        GENERATION: 4,
        LIMIT: 8,
    }
}

layout! {
    /// Payload of NCRST.
    ncrst {
        REASON: 4,
    }
}

layout! {
    /// Payload of WINDOW.
    window {
        LIMIT: 8,
    }
}

layout! {
    /// Payload of URGENT.
    urgent {
        FIRST: 8,
    }
}

layout! {
    /// Payload of RST.
    rst {
        REASON: 4,
    }
}

layout! {
    /// Payload of LISTEN.
    listen {
        ADDRESS: crate::layout::address::SIZE,
        LISTENER: 4,
    }
}

layout! {
    /// Payload of UNLISTEN.
    unlisten {
        LISTENER: 4,
    }
}

layout! {
    /// Payload of LISTEN_END.
    listen_end {
        FIRST: 8,
    }
}
