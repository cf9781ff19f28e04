//! The certificate authority of one test, and the server certificate that it signed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

/// New certificates in their own folder, which is removed with the last clone.
#[derive(Debug, Clone)]
pub struct Certificates(Arc<TempDir>);

impl Certificates {
    /// For a server on this machine: `127.0.0.1` and `localhost`.
    pub fn generate() -> Self {
        Self::for_hosts(&["127.0.0.1", "localhost"])
    }

    /// For a server with these names or addresses and no others.
    pub fn for_hosts(hosts: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("ringfence-tls-").tempdir();
        let certificates = Self(Arc::new(folder.expect("cannot make a temporary folder")));
        certificates.sign(hosts).expect("cannot make certificates");
        certificates
    }

    /// A server whose own certificate is that of an authority, which is a mistake.
    pub fn of_authority_alone() -> Self {
        let certificates = Self::generate();
        let make = || -> Result<(), rcgen::Error> {
            let mut params = CertificateParams::new(["127.0.0.1".to_owned()])?;
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate()?;
            let certificate = params.self_signed(&key)?.pem();
            write(&certificates.authority_file(), &certificate);
            write(&certificates.certificate_file(), &certificate);
            write(&certificates.key_file(), &key.serialize_pem());
            Ok(())
        };
        make().expect("cannot make certificates");
        certificates
    }

    /// The authority's certificate, which a client must trust.
    pub fn authority_file(&self) -> PathBuf {
        self.file("authority.pem")
    }

    /// The server's certificate.
    pub fn certificate_file(&self) -> PathBuf {
        self.file("server.pem")
    }

    /// The server's private key.
    pub fn key_file(&self) -> PathBuf {
        self.file("server.key")
    }

    fn sign(&self, hosts: &[&str]) -> Result<(), rcgen::Error> {
        let mut params = CertificateParams::new([])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let name = "ringfence test authority";
        params.distinguished_name.push(DnType::CommonName, name);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;

        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(hosts)?.signed_by(&key, &authority)?;

        write(&self.authority_file(), &authority.pem());
        write(&self.certificate_file(), &certificate.pem());
        write(&self.key_file(), &key.serialize_pem());
        Ok(())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn write(path: &Path, text: &str) {
    fs::write(path, text)
        .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}
