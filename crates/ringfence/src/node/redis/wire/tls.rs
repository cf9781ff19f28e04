//! TLS with our own choice of cryptography, and the trusted roots of the URL or of the system.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::url::TlsFiles;

/// Why the files that a URL names cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or is not a PEM file of the right kind.
    #[error("cannot use `{path}` for TLS: {why}")]
    File {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// No trusted root certificates.
    #[error("this system has no trusted root certificates; name one with ?ca=/path.pem")]
    NoRoots,
    /// Certificate and key do not belong together.
    #[error("the certificate and key cannot be used: {0}")]
    Identity(String),
}

/// A connector for TLS connections with `files`.
///
/// # Errors
/// If a file cannot be used, or there are no trusted roots. Reads files, so not for a hot path.
pub(crate) fn connector(files: &TlsFiles) -> Result<TlsConnector, TlsError> {
    let roots = trusted_roots(files.ca.as_deref())?;
    // Explicit, because a process may have no default provider, or another one.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Identity(error.to_string()))?
        .with_root_certificates(roots);
    let config = match &files.identity {
        None => config.with_no_client_auth(),
        Some((cert, key)) => config
            .with_client_auth_cert(certificates(cert)?, private_key(key)?)
            .map_err(|error| TlsError::Identity(error.to_string()))?,
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The roots of `ca` and no others, or else the system's (or those of `SSL_CERT_FILE` and
/// `SSL_CERT_DIR`). An authority of one's own protects from public ones only if they are not trusted
/// beside it.
fn trusted_roots(ca: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(ca) => {
            for certificate in certificates(ca)? {
                let added = roots.add(certificate);
                added.map_err(|error| unusable(ca, error))?;
            }
        }
        // An unreadable root is not trusted; that matters only if none is left.
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(TlsError::NoRoots);
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable(path, error))?;
    if found.is_empty() {
        return Err(unusable(path, "it holds no certificate"));
    }
    Ok(found)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| unusable(path, error))
}

fn unusable(path: &Path, why: impl ToString) -> TlsError {
    TlsError::File {
        path: path.display().to_string(),
        why: why.to_string(),
    }
}
