//! Where etcd is: `etcd://host:port,host:port` and, behind a slash, the root of the keys.

/// The members of an etcd cluster, and the key below which everything of ours lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdAddress {
    pub(super) members: Vec<String>,
    /// Without a slash at its end.
    pub(super) root: String,
}

/// What an address has to look like.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is no address of etcd; write etcd://HOST:PORT[,HOST:PORT...]")]
pub struct BadAddress {
    given: String,
}

impl std::str::FromStr for EtcdAddress {
    type Err = BadAddress;

    fn from_str(given: &str) -> Result<Self, BadAddress> {
        let bad = || BadAddress {
            given: given.to_string(),
        };
        let rest = given.strip_prefix("etcd://").ok_or_else(bad)?;
        let (members, root) = match rest.split_once('/') {
            Some((members, root)) => (members, root.trim_matches('/')),
            None => (rest, ""),
        };
        let members: Vec<String> = members.split(',').map(str::to_string).collect();
        let well_formed = |member: &String| {
            let parts = member.rsplit_once(':');
            parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        };
        if !members.iter().all(well_formed) {
            return Err(bad());
        }
        let root = if root.is_empty() { "stead" } else { root };
        Ok(EtcdAddress {
            members,
            root: format!("/{root}"),
        })
    }
}

impl std::fmt::Display for EtcdAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "etcd://{}{}", self.members.join(","), self.root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_at_the_edge() {
        let address: EtcdAddress = "etcd://a:2379,[::1]:1/team/x/".parse().unwrap();
        assert_eq!(address.members, ["a:2379", "[::1]:1"]);
        assert_eq!(address.root, "/team/x");
        assert_eq!("etcd://a:1".parse::<EtcdAddress>().unwrap().root, "/stead");
        for bad in [
            "",
            "etcd://",
            "http://a:1",
            "etcd://a",
            "etcd://a:b",
            "etcd://a:1,,b:2",
            "etcd://:1",
        ] {
            assert!(bad.parse::<EtcdAddress>().is_err(), "{bad}");
        }
    }
}
