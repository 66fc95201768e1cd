//! Protobuf's wire format: tags, varints and length-delimited pieces, read without trust.

/// What is wrong with bytes that should be a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("unexpected EOF")]
    Truncated,
    #[error("proto: integer overflow")]
    Overflow,
    #[error("proto: illegal wireType {0}")]
    WireType(u8),
    #[error("proto: illegal tag 0")]
    ZeroTag,
    #[error("proto: wrong wireType for field {0}")]
    WrongWireType(u32),
    #[error("proto: message is nested too deeply")]
    TooDeep,
    #[error("proto: message has too many parts")]
    TooLarge,
    #[error("proto: {0}")]
    BadValue(String),
}

/// One field's value as it is on the wire.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Raw<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

/// Reads one message.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// The next field's number and value; `None` at the end.
    pub fn next(&mut self) -> Result<Option<(u32, Raw<'a>)>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| WireError::Overflow)?;
        if number == 0 {
            return Err(WireError::ZeroTag);
        }
        let value = match tag & 7 {
            0 => Raw::Varint(self.varint()?),
            1 => Raw::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| WireError::Overflow)?;
                Raw::Bytes(self.take(length)?)
            }
            5 => Raw::Fixed32(u32::from_le_bytes(self.array()?)),
            other => return Err(WireError::WireType(other as u8)),
        };
        Ok(Some((number, value)))
    }

    /// A varint on its own, as packed lists hold them; `None` at the end.
    pub fn packed(&mut self) -> Result<Option<u64>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        self.varint().map(Some)
    }

    fn varint(&mut self) -> Result<u64, WireError> {
        let mut value: u64 = 0;
        for shift in (0..70).step_by(7) {
            let (&byte, rest) = self.rest.split_first().ok_or(WireError::Truncated)?;
            self.rest = rest;
            if shift == 63 && byte > 1 {
                return Err(WireError::Overflow);
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(WireError::Overflow)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        self.take(N)?.try_into().map_err(|_| WireError::Truncated)
    }
}

impl<'a> Raw<'a> {
    pub fn bytes(self, number: u32) -> Result<&'a [u8], WireError> {
        match self {
            Raw::Bytes(bytes) => Ok(bytes),
            _ => Err(WireError::WrongWireType(number)),
        }
    }

    pub fn varint(self, number: u32) -> Result<u64, WireError> {
        match self {
            Raw::Varint(value) => Ok(value),
            _ => Err(WireError::WrongWireType(number)),
        }
    }

    pub fn text(self, number: u32) -> Result<String, WireError> {
        // Go does not check strings of this syntax; its JSON writer replaces what is not UTF-8.
        Ok(String::from_utf8_lossy(self.bytes(number)?).into_owned())
    }
}

/// `runtime.Unknown`: what stands around every object.
#[derive(Debug, Default)]
pub struct Envelope<'a> {
    pub api_version: String,
    pub kind: String,
    pub raw: &'a [u8],
    pub content_encoding: String,
    pub content_type: String,
}

impl<'a> Envelope<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut envelope = Envelope::default();
        let mut reader = Reader::new(bytes);
        while let Some((number, value)) = reader.next()? {
            match number {
                1 => {
                    let mut types = Reader::new(value.bytes(1)?);
                    while let Some((number, value)) = types.next()? {
                        match number {
                            1 => envelope.api_version = value.text(1)?,
                            2 => envelope.kind = value.text(2)?,
                            _ => {}
                        }
                    }
                }
                2 => envelope.raw = value.bytes(2)?,
                3 => envelope.content_encoding = value.text(3)?,
                4 => envelope.content_type = value.text(4)?,
                _ => {}
            }
        }
        Ok(envelope)
    }
}

/// A whole body around an encoded object.
pub fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut types = Vec::new();
    put_bytes(&mut types, 1, api_version.as_bytes());
    put_bytes(&mut types, 2, kind.as_bytes());
    let mut body = super::MAGIC.to_vec();
    put_bytes(&mut body, 1, &types);
    put_bytes(&mut body, 2, raw);
    // Go writes both of these, empty or not.
    put_bytes(&mut body, 3, b"");
    put_bytes(&mut body, 4, b"");
    body
}

pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub fn put_number(out: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(out, u64::from(number) << 3);
    put_varint(out, value);
}

pub fn put_double(out: &mut Vec<u8>, number: u32, value: f64) {
    put_varint(out, u64::from(number) << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

pub fn put_bytes(out: &mut Vec<u8>, number: u32, value: &[u8]) {
    put_varint(out, u64::from(number) << 3 | 2);
    put_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}
