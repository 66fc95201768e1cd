//! What a container cannot have where pods share the machine, said before it is started.
//!
//! Without these checks the program itself would fail, in words of its own that lead nowhere near the cause.

use super::launch::config_error;
use super::users::{self, Standing};
use crate::node::runtime::RuntimeError;
use crate::node::shape::Whole;
use nix::unistd::{getegid, geteuid};
use std::io::ErrorKind;
use std::net::{IpAddr, TcpListener};

/// Refuses a user or group that this process cannot become.
pub fn check_user(user: Option<u32>, group: Option<u32>) -> Result<(), RuntimeError> {
    let (own, own_group) = (geteuid().as_raw(), getegid().as_raw());
    for (field, wanted, own) in [("runAsUser", user, own), ("runAsGroup", group, own_group)] {
        if let Some(wanted) = wanted.filter(|wanted| *wanted != own && users::standing() != Standing::Root) {
            return Err(config_error(format!(
                "{field} {wanted} cannot be had: this node has no rights but its user's, and runs everything as {own}"
            )));
        }
    }
    Ok(())
}

/// Refuses ports that another program of the machine has on all addresses: what comes for this pod would reach that one.
pub fn check_ports(container: &Whole, address: IpAddr) -> Result<(), RuntimeError> {
    let ports = container.ports.iter().flatten();
    let tcp = ports.filter(|port| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP"));
    for port in tcp.filter_map(|port| u16::try_from(port.container_port).ok()) {
        let taken = TcpListener::bind((address, port)).is_err_and(|error| error.kind() == ErrorKind::AddrInUse);
        if taken {
            return Err(RuntimeError::Machine {
                reason: "CreateContainerError",
                message: format!(
                    "port {port} is taken on all addresses of this machine by another program, maybe of another pod, and pods \
                     share the machine's network here: let each listen at its pod's own address only"
                ),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_port_that_another_has_on_all_addresses_is_refused() {
        let other = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = other.local_addr().unwrap().port();
        let container: Whole =
            serde_json::from_value(json!({"name": "c", "ports": [{"containerPort": port}]})).unwrap();
        let address = IpAddr::from([127, 18, 0, 9]);
        let refused = check_ports(&container, address).unwrap_err();
        assert!(
            refused.to_string().contains(&format!("port {port} is taken")),
            "{refused}"
        );
        drop(other);
        check_ports(&container, address).unwrap();
    }
}
