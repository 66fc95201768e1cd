//! Addresses and networks.

use super::Call;
use crate::error::EvalError;
use crate::value::Value;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network: an address and how many of its bits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    pub address: IpAddr,
    pub prefix: u8,
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl Cidr {
    /// The same network with its host bits zero.
    fn masked(self) -> Cidr {
        let address = match self.address {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from(u32::from(ip) & mask))
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from(u128::from(ip) & mask))
            }
        };
        Cidr {
            address,
            prefix: self.prefix,
        }
    }

    fn contains(self, ip: IpAddr) -> bool {
        let other = Cidr {
            address: ip,
            prefix: self.prefix,
        };
        ip.is_ipv4() == self.address.is_ipv4() && other.masked().address == self.masked().address
    }
}

pub fn implementation(name: &str) -> Option<Call> {
    Some(match name {
        "ip" => |args| match args {
            [Value::String(text)] => parse_ip(text).map(Value::Ip),
            [Value::Cidr(cidr)] => Ok(Value::Ip(cidr.address)),
            _ => Err(EvalError::NoSuchOverload),
        },
        "isIP" => |args| text(args, |text| Ok(parse_ip(text).is_ok())),
        "ip.isCanonical" => |args| text(args, |text| Ok(parse_ip(text)?.to_string() == text)),
        "family" => |args| Ok(Value::Int(if ip(args)?.is_ipv4() { 4 } else { 6 })),
        "isUnspecified" => |args| Ok(Value::Bool(ip(args)?.is_unspecified())),
        "isLoopback" => |args| Ok(Value::Bool(ip(args)?.is_loopback())),
        "isLinkLocalMulticast" => |args| Ok(Value::Bool(link_local_multicast(ip(args)?))),
        "isLinkLocalUnicast" => |args| Ok(Value::Bool(link_local_unicast(ip(args)?))),
        "isGlobalUnicast" => |args| {
            let ip = ip(args)?;
            let special = ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || link_local_unicast(ip);
            let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
            Ok(Value::Bool(!special && !broadcast))
        },
        "cidr" => |args| match args {
            [Value::String(text)] => parse_cidr(text).map(Value::Cidr),
            _ => Err(EvalError::NoSuchOverload),
        },
        "isCIDR" => |args| text(args, |text| Ok(parse_cidr(text).is_ok())),
        "containsIP" => |args| match args {
            [Value::Cidr(cidr), Value::Ip(ip)] => Ok(Value::Bool(cidr.contains(*ip))),
            [Value::Cidr(cidr), Value::String(text)] => Ok(Value::Bool(cidr.contains(parse_ip(text)?))),
            _ => Err(EvalError::NoSuchOverload),
        },
        "containsCIDR" => |args| {
            let (outer, inner) = match args {
                [Value::Cidr(outer), Value::Cidr(inner)] => (*outer, *inner),
                [Value::Cidr(outer), Value::String(text)] => (*outer, parse_cidr(text)?),
                _ => return Err(EvalError::NoSuchOverload),
            };
            let inside = outer.contains(inner.masked().address) && outer.prefix <= inner.prefix;
            Ok(Value::Bool(inside))
        },
        "prefixLength" => |args| Ok(Value::Int(i64::from(cidr(args)?.prefix))),
        "masked" => |args| Ok(Value::Cidr(cidr(args)?.masked())),
        _ => return None,
    })
}

fn text<'a>(args: &[Value<'a>], test: fn(&str) -> Result<bool, EvalError>) -> Result<Value<'a>, EvalError> {
    match args {
        [Value::String(text)] => test(text).map(Value::Bool),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn ip(args: &[Value<'_>]) -> Result<IpAddr, EvalError> {
    match args {
        [Value::Ip(ip)] => Ok(*ip),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn cidr(args: &[Value<'_>]) -> Result<Cidr, EvalError> {
    match args {
        [Value::Cidr(cidr)] => Ok(*cidr),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn link_local_multicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
        IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
    }
}

fn link_local_unicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn parse_ip(text: &str) -> Result<IpAddr, EvalError> {
    if text.contains('%') && text.contains(':') {
        let message = format!("IP address {text:?} with zone value is not allowed");
        return Err(EvalError::Invalid(message));
    }
    let ip: IpAddr = text.parse().map_err(|_| {
        EvalError::invalid(format!(
            "IP Address {text:?} parse error during conversion from string: ParseAddr({text:?}): unable to parse IP"
        ))
    })?;
    match ip {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => Err(EvalError::invalid(format!(
            "IPv4-mapped IPv6 address {text:?} is not allowed"
        ))),
        ip => Ok(ip),
    }
}

fn parse_cidr(text: &str) -> Result<Cidr, EvalError> {
    let wrong = || {
        EvalError::invalid(format!(
            "network address parse error during conversion from string: network address parse error during conversion \
             from string: netip.ParsePrefix({text:?}): no '/'"
        ))
    };
    let (address, prefix) = text.split_once('/').ok_or_else(wrong)?;
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let plain = !prefix.is_empty()
        && prefix.len() <= 3
        && prefix.bytes().all(|byte| byte.is_ascii_digit())
        && (prefix.len() == 1 || !prefix.starts_with('0'));
    let prefix: u8 = if plain {
        prefix.parse().map_err(|_| wrong())?
    } else {
        return Err(wrong());
    };
    let bits = if address.is_ipv4() { 32 } else { 128 };
    if prefix > bits {
        return Err(wrong());
    }
    if matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
        return Err(EvalError::invalid(format!(
            "IPv4-mapped IPv6 address {text:?} is not allowed"
        )));
    }
    Ok(Cidr { address, prefix })
}
