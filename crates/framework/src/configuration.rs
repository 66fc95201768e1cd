//! How an operator is configured: by file, environment and flags, each over the one before.
//!
//! The names of the flags are those that users of kubebuilder know. The binary parses its flags into
//! [`Overrides`]; everything else is here, so that every operator behaves the same.

use crate::cache::Namespaces;
use crate::leader::LeaderElection;
use serde::Deserialize;
use std::net::SocketAddr;
use std::time::Duration;

/// The configuration of an operator, complete and valid.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// Where the Lease is, if a leader is elected.
    pub election: Option<String>,
    /// How long others wait for a silent leader, how long that goes on without renewing, and how often it tries.
    pub times: ElectionTimes,
    /// Where the operator works.
    pub namespaces: Namespaces,
    /// None: not served.
    pub metrics: Option<SocketAddr>,
    /// Where probes are served; none: nowhere.
    pub probes: Option<SocketAddr>,
    /// Where webhooks are served; none: nowhere.
    pub webhooks: Option<SocketAddr>,
    /// How log lines look.
    pub log_format: LogFormat,
}

/// The times of an election, as [`LeaderElection`] has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElectionTimes {
    /// How long others wait for a leader that is silent.
    pub lease: Duration,
    /// A leader that could not renew for so long stops writing.
    pub renew_deadline: Duration,
    /// The pause between attempts.
    pub retry: Duration,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// What one source of configuration says; what it does not say is left to the one before.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Overrides {
    /// Whether a leader is elected.
    pub leader_elect: Option<bool>,
    /// Where the Lease is.
    pub leader_election_namespace: Option<String>,
    /// How long others wait for a leader that is silent, such as `15s`.
    pub leader_election_lease_duration: Option<String>,
    /// How long a leader goes on that cannot renew.
    pub leader_election_renew_deadline: Option<String>,
    /// The pause between its attempts.
    pub leader_election_retry_period: Option<String>,
    /// Where the operator works.
    pub namespaces: Option<Vec<String>>,
    /// `HOST:PORT` of `/metrics`; `0`: nowhere.
    pub metrics_bind_address: Option<String>,
    /// `HOST:PORT` of the probes; `0`: nowhere.
    pub health_probe_bind_address: Option<String>,
    /// `HOST:PORT` of the webhooks.
    pub webhook_bind_address: Option<String>,
    /// How log lines look.
    pub log_format: Option<LogFormat>,
}

/// Something in the configuration makes no sense.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {problem}")]
pub struct ConfigurationError {
    /// Which setting.
    pub setting: String,
    /// What is wrong with it.
    pub problem: String,
}

fn wrong(setting: &str, problem: impl Into<String>) -> ConfigurationError {
    ConfigurationError {
        setting: setting.to_owned(),
        problem: problem.into(),
    }
}

impl Overrides {
    /// What a configuration file says, in YAML or JSON.
    pub fn from_file(text: &str) -> Result<Self, ConfigurationError> {
        serde_saphyr::from_str(text).map_err(|error| wrong("configuration file", error.to_string()))
    }

    /// What the environment says: `STEAD_LEADER_ELECT`, `STEAD_NAMESPACES` and so on.
    pub fn from_environment(get: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigurationError> {
        let leader_elect = match get("STEAD_LEADER_ELECT").as_deref() {
            None | Some("") => None,
            Some("true" | "1") => Some(true),
            Some("false" | "0") => Some(false),
            Some(other) => {
                return Err(wrong(
                    "STEAD_LEADER_ELECT",
                    format!("`{other}` is neither true nor false"),
                ));
            }
        };
        let log_format = match get("STEAD_LOG_FORMAT").as_deref() {
            None | Some("") => None,
            Some("text") => Some(LogFormat::Text),
            Some("json") => Some(LogFormat::Json),
            Some(other) => return Err(wrong("STEAD_LOG_FORMAT", format!("`{other}` is neither text nor json"))),
        };
        // A template that was filled in with nothing says nothing.
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        Ok(Overrides {
            leader_elect,
            leader_election_namespace: get("STEAD_LEADER_ELECTION_NAMESPACE"),
            leader_election_lease_duration: get("STEAD_LEADER_ELECTION_LEASE_DURATION"),
            leader_election_renew_deadline: get("STEAD_LEADER_ELECTION_RENEW_DEADLINE"),
            leader_election_retry_period: get("STEAD_LEADER_ELECTION_RETRY_PERIOD"),
            namespaces: get("STEAD_NAMESPACES").map(|list| split(&list)),
            metrics_bind_address: get("STEAD_METRICS_BIND_ADDRESS"),
            health_probe_bind_address: get("STEAD_HEALTH_PROBE_BIND_ADDRESS"),
            webhook_bind_address: get("STEAD_WEBHOOK_BIND_ADDRESS"),
            log_format,
        })
    }

    /// What this says, and where it says nothing, what the one before said.
    pub fn over(self, before: Overrides) -> Overrides {
        Overrides {
            leader_elect: self.leader_elect.or(before.leader_elect),
            leader_election_namespace: self.leader_election_namespace.or(before.leader_election_namespace),
            leader_election_lease_duration: self
                .leader_election_lease_duration
                .or(before.leader_election_lease_duration),
            leader_election_renew_deadline: self
                .leader_election_renew_deadline
                .or(before.leader_election_renew_deadline),
            leader_election_retry_period: self
                .leader_election_retry_period
                .or(before.leader_election_retry_period),
            namespaces: self.namespaces.or(before.namespaces),
            metrics_bind_address: self.metrics_bind_address.or(before.metrics_bind_address),
            health_probe_bind_address: self.health_probe_bind_address.or(before.health_probe_bind_address),
            webhook_bind_address: self.webhook_bind_address.or(before.webhook_bind_address),
            log_format: self.log_format.or(before.log_format),
        }
    }
}

impl Configuration {
    /// Refines what was said into a valid configuration. `own_namespace` is where the operator runs.
    pub fn new(said: Overrides, own_namespace: &str) -> Result<Self, ConfigurationError> {
        let namespaces = match said.namespaces {
            None => Namespaces::All,
            Some(list) => {
                let list: Vec<String> = list.into_iter().filter(|name| !name.is_empty()).collect();
                for name in &list {
                    let problems = stead_machinery::names::dns1123_label(name);
                    if let Some(problem) = problems.first() {
                        return Err(wrong("--namespaces", format!("`{name}`: {problem}")));
                    }
                }
                if list.is_empty() {
                    // Whoever names namespaces means to stay within them; nothing must not become everything.
                    return Err(wrong(
                        "--namespaces",
                        "the list is empty; leave the option out for all namespaces",
                    ));
                }
                Namespaces::Only(list)
            }
        };
        let election_namespace = said
            .leader_election_namespace
            .unwrap_or_else(|| own_namespace.to_owned());
        let usual = LeaderElection::new("", &election_namespace);
        let election = LeaderElection {
            lease: duration(LEASE, said.leader_election_lease_duration, usual.lease)?,
            renew_deadline: duration(RENEW, said.leader_election_renew_deadline, usual.renew_deadline)?,
            retry: duration(RETRY, said.leader_election_retry_period, usual.retry)?,
            ..usual
        };
        election.check().map_err(|error| wrong(LEASE, error.to_string()))?;
        Ok(Configuration {
            election: said.leader_elect.unwrap_or(false).then_some(election_namespace),
            times: ElectionTimes {
                lease: election.lease,
                renew_deadline: election.renew_deadline,
                retry: election.retry,
            },
            namespaces,
            metrics: address("--metrics-bind-address", said.metrics_bind_address)?,
            probes: address("--health-probe-bind-address", said.health_probe_bind_address)?,
            webhooks: address("--webhook-bind-address", said.webhook_bind_address)?,
            log_format: said.log_format.unwrap_or_default(),
        })
    }

    /// The election, if one was asked for, with a Lease of this name.
    pub fn leader_election(&self, lease: &str) -> Option<LeaderElection> {
        let ElectionTimes {
            lease: length,
            renew_deadline,
            retry,
        } = self.times;
        self.election.as_ref().map(|namespace| LeaderElection {
            lease: length,
            renew_deadline,
            retry,
            ..LeaderElection::new(lease, namespace)
        })
    }
}

/// Namespaces as flags and the environment give them: separated by commas.
pub fn split(list: &str) -> Vec<String> {
    list.split(',')
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}

const LEASE: &str = "--leader-election-lease-duration";
const RENEW: &str = "--leader-election-renew-deadline";
const RETRY: &str = "--leader-election-retry-period";

/// A time such as `15s`, `1m30s` or `500ms`.
fn duration(setting: &str, text: Option<String>, usual: Duration) -> Result<Duration, ConfigurationError> {
    let Some(text) = text else { return Ok(usual) };
    let parsed = text.parse::<jiff::SignedDuration>().ok();
    parsed
        .and_then(|parsed| Duration::try_from(parsed).ok())
        .ok_or_else(|| wrong(setting, format!("`{text}` is not a time such as 15s")))
}

/// `HOST:PORT`, `:PORT` for every interface, `0` for not at all.
fn address(setting: &str, text: Option<String>) -> Result<Option<SocketAddr>, ConfigurationError> {
    let Some(text) = text.filter(|text| !text.is_empty() && text != "0") else {
        return Ok(None);
    };
    let full = match text.strip_prefix(':') {
        Some(port) => format!("0.0.0.0:{port}"),
        None => text.replacen("localhost:", "127.0.0.1:", 1),
    };
    let parsed = full
        .parse()
        .map_err(|_| wrong(setting, format!("`{text}` is not HOST:PORT")))?;
    Ok(Some(parsed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_go_over_the_environment_and_the_environment_over_the_file() {
        let file = Overrides::from_file("leaderElect: true\nnamespaces: [a, b]\nmetricsBindAddress: ':8080'").unwrap();
        let environment =
            Overrides::from_environment(|name| (name == "STEAD_NAMESPACES").then(|| "c, d".to_owned())).unwrap();
        let flags = Overrides {
            metrics_bind_address: Some("0".to_owned()),
            ..Overrides::default()
        };
        let configuration = Configuration::new(flags.over(environment.over(file)), "ours").unwrap();
        assert_eq!(configuration.election.as_deref(), Some("ours"));
        assert_eq!(
            configuration.namespaces,
            Namespaces::Only(vec!["c".to_owned(), "d".to_owned()])
        );
        assert_eq!(configuration.metrics, None);
    }

    #[test]
    fn the_times_of_an_election_can_be_set_and_make_sense() {
        let file = "leaderElect: true\nleaderElectionLeaseDuration: 1m\nleaderElectionRenewDeadline: 40s";
        let configuration = Configuration::new(Overrides::from_file(file).unwrap(), "ours").unwrap();
        let election = configuration.leader_election("us").unwrap();
        assert_eq!(
            (election.lease, election.renew_deadline, election.retry),
            (Duration::from_secs(60), Duration::from_secs(40), Duration::from_secs(2))
        );
        let said = |file: &str| Configuration::new(Overrides::from_file(file).unwrap(), "ours").unwrap_err();
        let short = said("leaderElectionLeaseDuration: 5s").to_string();
        assert!(
            short.starts_with("--leader-election-lease-duration: the lease (5s) must be longer"),
            "{short}"
        );
        assert_eq!(
            said("leaderElectionRetryPeriod: soon").to_string(),
            "--leader-election-retry-period: `soon` is not a time such as 15s"
        );
    }

    #[test]
    fn nonsense_names_the_setting() {
        let said = Overrides {
            health_probe_bind_address: Some("here".to_owned()),
            ..Overrides::default()
        };
        let error = Configuration::new(said, "ours").unwrap_err();
        assert_eq!(
            error.to_string(),
            "--health-probe-bind-address: `here` is not HOST:PORT"
        );
        assert!(Overrides::from_file("colour: red").is_err());
    }
}
