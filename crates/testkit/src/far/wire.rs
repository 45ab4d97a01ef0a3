//! Requests to the far process and its answers, as bytes. Both ends are the same program on the same machine.

use std::io::{self, Read, Write};

/// The call that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Call {
    Socket,
    Bind,
    Listen,
    Connect,
    Accept,
    AcceptFrom,
    Accept4,
    Shutdown,
    OwnName,
    PeerName,
    SetOption,
    Option,
    AtMark,
    Close,
    Dup,
    Control,
    IoctlInt,
    Send,
    Receive,
    Read,
    Write,
    SendTo,
    WriteVector,
    Poll,
}

impl Call {
    const ALL: [Call; 24] = [
        Call::Socket,
        Call::Bind,
        Call::Listen,
        Call::Connect,
        Call::Accept,
        Call::AcceptFrom,
        Call::Accept4,
        Call::Shutdown,
        Call::OwnName,
        Call::PeerName,
        Call::SetOption,
        Call::Option,
        Call::AtMark,
        Call::Close,
        Call::Dup,
        Call::Control,
        Call::IoctlInt,
        Call::Send,
        Call::Receive,
        Call::Read,
        Call::Write,
        Call::SendTo,
        Call::WriteVector,
        Call::Poll,
    ];
}

/// A call with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub call: Call,
    /// The descriptor's number in the far process.
    pub descriptor: i32,
    pub numbers: [i64; 3],
    pub bytes: Vec<u8>,
}

/// The result of a call: a result or an errno (negative), a second number, bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub result: i64,
    pub number: i64,
    pub bytes: Vec<u8>,
}

impl Request {
    pub fn write(&self, output: &mut impl Write) -> io::Result<()> {
        let mut text = vec![self.call as u8];
        text.extend(self.descriptor.to_ne_bytes());
        for number in self.numbers {
            text.extend(number.to_ne_bytes());
        }
        text.extend((self.bytes.len() as u64).to_ne_bytes());
        text.extend(&self.bytes);
        output.write_all(&text)
    }

    /// The next request, or `None` at the end of the stream.
    pub fn read(input: &mut impl Read) -> io::Result<Option<Self>> {
        let mut call = [0];
        if input.read(&mut call)? == 0 {
            return Ok(None);
        }
        let known = Call::ALL.into_iter().find(|known| *known as u8 == call[0]);
        let call = known.ok_or_else(|| io::Error::other("no such call"))?;
        let descriptor = i32::from_ne_bytes(fixed(input)?);
        let mut numbers = [0; 3];
        for number in &mut numbers {
            *number = i64::from_ne_bytes(fixed(input)?);
        }
        Ok(Some(Request {
            call,
            descriptor,
            numbers,
            bytes: bytes(input)?,
        }))
    }
}

impl Answer {
    pub fn write(&self, output: &mut impl Write) -> io::Result<()> {
        let mut text = Vec::new();
        text.extend(self.result.to_ne_bytes());
        text.extend(self.number.to_ne_bytes());
        text.extend((self.bytes.len() as u64).to_ne_bytes());
        text.extend(&self.bytes);
        output.write_all(&text)
    }

    pub fn read(input: &mut impl Read) -> io::Result<Self> {
        Ok(Answer {
            result: i64::from_ne_bytes(fixed(input)?),
            number: i64::from_ne_bytes(fixed(input)?),
            bytes: bytes(input)?,
        })
    }
}

fn fixed<const SIZE: usize>(input: &mut impl Read) -> io::Result<[u8; SIZE]> {
    let mut bytes = [0; SIZE];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn bytes(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let length = usize::try_from(u64::from_ne_bytes(fixed(input)?)).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (place, call) in Call::ALL.into_iter().enumerate() {
            assert_eq!(call as usize, place);
            let request = Request {
                call,
                descriptor: 7,
                numbers: [-1, 2, i64::MAX],
                bytes: vec![1; place],
            };
            let mut text = Vec::new();
            request.write(&mut text).unwrap();
            let mut input = text.as_slice();
            assert_eq!(Request::read(&mut input).unwrap(), Some(request));
            assert_eq!(Request::read(&mut input).unwrap(), None);
        }
        let answer = Answer {
            result: -11,
            number: 5,
            bytes: b"text".to_vec(),
        };
        let mut text = Vec::new();
        answer.write(&mut text).unwrap();
        assert_eq!(Answer::read(&mut text.as_slice()).unwrap(), answer);
    }
}
