//! The certificates of one control plane: an authority, a server, an administrator.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::StartError;

/// Where they were written.
pub struct Certificates {
    directory: PathBuf,
}

impl Certificates {
    /// Makes all of them anew in this directory.
    pub fn write(directory: &Path) -> Result<Self, StartError> {
        let made = Certificates {
            directory: directory.to_path_buf(),
        };
        let ca_key = KeyPair::generate()?;
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        ca.distinguished_name.push(DnType::CommonName, "stead-test-ca");
        let authority = ca.self_signed(&ca_key)?;
        made.put("ca.crt", &authority.pem())?;
        made.put("ca.key", &ca_key.serialize_pem())?;
        let issuer = Issuer::new(ca, ca_key);

        let mut server =
            CertificateParams::new(["localhost", "kubernetes", "kubernetes.default.svc"].map(String::from))?;
        server
            .subject_alt_names
            .push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        made.sign("server", server, &issuer)?;

        let mut admin = CertificateParams::default();
        admin.distinguished_name.push(DnType::CommonName, "kubernetes-admin");
        admin
            .distinguished_name
            .push(DnType::OrganizationName, "system:masters");
        admin.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        made.sign("admin", admin, &issuer)?;

        let accounts = KeyPair::generate()?;
        made.put("service-account.key", &accounts.serialize_pem())?;
        made.put("service-account.pub", &accounts.public_key_pem())?;
        Ok(made)
    }

    /// A kubeconfig of the administrator for this server.
    pub fn write_kubeconfig(&self, path: &Path, server: &str) -> Result<(), StartError> {
        let file = |name: &str| self.directory.join(name).display().to_string();
        let kubeconfig = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "kubernetes", "cluster": {"server": server, "certificate-authority": file("ca.crt")}}],
            "users": [{"name": "admin", "user": {"client-certificate": file("admin.crt"), "client-key": file("admin.key")}}],
            "contexts": [{"name": "kubernetes", "context": {"cluster": "kubernetes", "user": "admin"}}],
            "current-context": "kubernetes",
        });
        private_file(path, kubeconfig.to_string().as_bytes())?;
        Ok(())
    }

    fn sign(&self, name: &str, parameters: CertificateParams, issuer: &Issuer<'_, KeyPair>) -> Result<(), StartError> {
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, issuer)?;
        self.put(&format!("{name}.crt"), &certificate.pem())?;
        self.put(&format!("{name}.key"), &key.serialize_pem())
    }

    fn put(&self, name: &str, pem: &str) -> Result<(), StartError> {
        private_file(&self.directory.join(name), pem.as_bytes())?;
        Ok(())
    }
}

fn private_file(path: &Path, content: &[u8]) -> std::io::Result<()> {
    fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?
        .write_all(content)
}
