//! What a certificate signing request asks for, and whether its signer gives that. Pure.

use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use rcgen::{CertificateSigningRequestParams, DnType, DnValue, SanType};

/// Those whom the cluster's authority signs for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signer {
    ApiClient,
    KubeletClient,
    KubeletServing,
    Legacy,
}

impl Signer {
    pub fn of(request: &CertificateSigningRequest) -> Option<Self> {
        match request.spec.signer_name.as_str() {
            "kubernetes.io/kube-apiserver-client" => Some(Signer::ApiClient),
            "kubernetes.io/kube-apiserver-client-kubelet" => Some(Signer::KubeletClient),
            "kubernetes.io/kubelet-serving" => Some(Signer::KubeletServing),
            "kubernetes.io/legacy-unknown" => Some(Signer::Legacy),
            _ => None,
        }
    }
}

/// Why a request is not signed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the request cannot be read: {0}")]
    Unreadable(String),
    #[error("usages did not match {0}")]
    Usages(&'static str),
    #[error("organization must be system:nodes and the common name must begin with system:node:")]
    NotANode,
    #[error("{0} subjectAltNames are not allowed")]
    Names(&'static str),
    #[error("DNS or IP subjectAltName is required")]
    NoNames,
    #[error("subject organization is not allowed to contain [system:masters]")]
    Masters,
}

/// A request as far as signers look at it.
pub struct Wanted {
    pub params: CertificateSigningRequestParams,
    pub name: String,
    pub organizations: Vec<String>,
}

/// Reads the PKCS#10 request, which proves that its sender has the key.
pub fn read(spec: &CertificateSigningRequestSpec) -> Result<Wanted, Refusal> {
    let unreadable = |why: String| Refusal::Unreadable(why);
    let pem = std::str::from_utf8(&spec.request.0).map_err(|error| unreadable(error.to_string()))?;
    let params = CertificateSigningRequestParams::from_pem(pem).map_err(|error| unreadable(error.to_string()))?;
    let subject = &params.params.distinguished_name;
    let all = |wanted: &DnType| -> Vec<String> {
        let found = subject.iter().filter(|(kind, _)| *kind == wanted);
        found.map(|(_, value)| text(value)).collect()
    };
    let name = all(&DnType::CommonName).into_iter().next().unwrap_or_default();
    let organizations = all(&DnType::OrganizationName);
    Ok(Wanted {
        params,
        name,
        organizations,
    })
}

fn text(value: &DnValue) -> String {
    match value {
        DnValue::Utf8String(text) => text.clone(),
        DnValue::PrintableString(text) => text.to_string(),
        DnValue::Ia5String(text) => text.to_string(),
        DnValue::TeletexString(text) => text.to_string(),
        // What cannot be compared must not match anything.
        _ => String::new(),
    }
}

/// Whether the subject is that of a node.
pub fn is_of_node(wanted: &Wanted) -> bool {
    let node = wanted.name.strip_prefix("system:node:");
    wanted.organizations == ["system:nodes"] && node.is_some_and(|name| !name.is_empty())
}

/// Whether a signer gives what is asked for.
pub fn check(signer: Signer, spec: &CertificateSigningRequestSpec, wanted: &Wanted) -> Result<(), Refusal> {
    let usages: Vec<&str> = spec.usages.iter().flatten().map(String::as_str).collect();
    let only =
        |allowed: &[&str], needed: &str| usages.contains(&needed) && usages.iter().all(|usage| allowed.contains(usage));
    let client = ["client auth", "digital signature", "key encipherment"];
    let serving = ["server auth", "digital signature", "key encipherment"];
    let names = &wanted.params.params.subject_alt_names;
    let plain = |name: &SanType| matches!(name, SanType::DnsName(_) | SanType::IpAddress(_));
    if wanted.organizations.iter().any(|group| group == "system:masters") {
        return Err(Refusal::Masters);
    }
    match signer {
        Signer::ApiClient if !only(&client, "client auth") => Err(Refusal::Usages("client auth")),
        Signer::KubeletClient if !is_of_node(wanted) => Err(Refusal::NotANode),
        Signer::KubeletClient if !names.is_empty() => Err(Refusal::Names("DNS, IP, email and URI")),
        Signer::KubeletClient if !only(&client, "client auth") => Err(Refusal::Usages("client auth")),
        Signer::KubeletServing if !is_of_node(wanted) => Err(Refusal::NotANode),
        Signer::KubeletServing if names.is_empty() => Err(Refusal::NoNames),
        Signer::KubeletServing if !names.iter().all(plain) => Err(Refusal::Names("email and URI")),
        Signer::KubeletServing if !only(&serving, "server auth") => Err(Refusal::Usages("server auth")),
        Signer::ApiClient | Signer::KubeletClient | Signer::KubeletServing | Signer::Legacy => Ok(()),
    }
}
