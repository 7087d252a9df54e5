//! The cluster's first commit: tenant, namespaces and first token, from the configuration of the one node that
//! bootstraps. Afterwards this part of the configuration has no effect.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use hapax_auth::{Role, Roles, Token, TokenRecord};
use hapax_machine::command::Bootstrap;
use hapax_machine::ids::{ClientId, TenantId, WallTime};
use hapax_machine::namespace::Retention;
use hapax_machine::tenant;

use crate::config::{Config, ConfigError, TokenSection, refuse_retention, wrong};

/// The file that a drawn first token is written to, in the data directory.
const TOKEN_FILE: &str = "bootstrap-token";
/// Its presence makes the next start of this node begin the cluster's life, as `cluster.bootstrap` does.
const MARKER_FILE: &str = "bootstrap";
/// The client that the first token stands for.
const FIRST_CLIENT: &str = "operator";

/// Checks what [`command`] and [`local_tokens`] will rely on.
pub(crate) fn check(config: &Config) -> Result<(), ConfigError> {
    let mut names = BTreeSet::new();
    for namespace in &config.bootstrap.namespaces {
        if namespace.name.parse::<hapax_api::text::Namespace>().is_err() {
            return Err(wrong("bootstrap.namespaces", format!("{:?} is not a namespace name", namespace.name)));
        }
        if let Some(reason) = refuse_retention(&namespace.retention.policy(Retention::default())) {
            return Err(wrong("bootstrap.namespaces", format!("{}: {reason}", namespace.name)));
        }
        if !names.insert(&namespace.name) {
            return Err(wrong("bootstrap.namespaces", format!("names {:?} twice", namespace.name)));
        }
    }
    if config.auth.bootstrap_token.as_ref().is_some_and(|token| Token::parse(token.trim()).is_none()) {
        return Err(wrong("auth.bootstrap_token", "is not a token hpx_<id>_<secret>".to_owned()));
    }
    if config.auth.dev_token && !config.listen.client.ip().is_loopback() {
        return Err(wrong("listen.client", "must be a loopback address where the token dev is accepted".to_owned()));
    }
    if config.bootstrap.tenant.parse::<hapax_api::text::Namespace>().is_err() {
        return Err(wrong("bootstrap.tenant", format!("{:?} is not a tenant name", config.bootstrap.tenant)));
    }
    local_tokens(config).map(drop)
}

/// The tokens that the configuration gives this node.
pub(crate) fn local_tokens(config: &Config) -> Result<Vec<TokenRecord>, ConfigError> {
    let mut tokens = Vec::new();
    let mut ids = BTreeSet::new();
    for section in &config.auth.tokens {
        if !ids.insert(&section.id) {
            return Err(wrong("auth.tokens", format!("has the id {:?} twice", section.id)));
        }
        tokens.push(configured(section)?);
    }
    if config.auth.dev_token {
        tokens.push(TokenRecord::dev(&config.bootstrap.tenant));
    }
    Ok(tokens)
}

fn configured(section: &TokenSection) -> Result<TokenRecord, ConfigError> {
    let refused = |reason: String| wrong("auth.tokens", format!("{}: {reason}", section.id));
    // What a claim stores of its caller must be readable on the wire again.
    if section.client.parse::<hapax_api::text::Label>().is_err() {
        return Err(refused(format!("client {:?} is not 1 to 255 visible ASCII characters", section.client)));
    }
    for name in section.namespaces.iter().chain([&section.tenant]) {
        if name.parse::<hapax_api::text::Namespace>().is_err() {
            return Err(refused(format!("{name:?} is not a name")));
        }
    }
    let secret_hash = hapax_auth::parse_hash(&section.secret_sha256)
        .ok_or_else(|| refused("secret_sha256 is not 64 hexadecimal digits".to_owned()))?;
    let mut roles = Roles::default();
    for name in &section.roles {
        roles = roles.with(Role::parse(name).ok_or_else(|| refused(format!("{name:?} is not a role")))?);
    }
    Ok(TokenRecord {
        id: section.id.clone(),
        secret_hash,
        tenant: section.tenant.clone(),
        client: section.client.clone(),
        namespaces: section.namespaces.clone(),
        roles,
        expires_at_ms: None,
    })
}

/// The first commit of the configuration.
pub(crate) fn command(config: &Config, token: &Token, cluster_id: [u8; 16], wall_ms: u64) -> Bootstrap {
    let tenant = TenantId::new(config.bootstrap.tenant.as_str());
    let namespaces = config.bootstrap.namespaces.iter().map(|section| section.record(&tenant)).collect();
    let tokens = vec![tenant::TokenRecord {
        id: token.id().to_owned(),
        secret_hash: token.secret_hash(),
        tenant,
        client: ClientId::new(FIRST_CLIENT),
        namespaces: Vec::new(),
        roles: Roles::all().bits(),
        expires_at_ms: None,
        created_at: WallTime(wall_ms),
        revoked_at: None,
    }];
    // The tenant is named by what it owns, and is the system's because it is the first.
    Bootstrap { cluster_id, wall_ms, namespaces, tokens, tenants: Vec::new() }
}

/// The first token: the configured one, the one an interrupted bootstrap wrote, or a new one, which is durable
/// before it is used: a token that only the cluster knew could never be presented.
pub(crate) fn first_token(config: &Config) -> io::Result<Token> {
    if let Some(text) = &config.auth.bootstrap_token {
        return parse(text, Path::new("auth.bootstrap_token"));
    }
    if let Some(file) = &config.auth.bootstrap_token_file {
        return parse(&fs::read_to_string(file)?, file);
    }
    let file = token_file(config);
    match fs::read_to_string(&file) {
        Ok(text) => parse(&text, &file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let token = Token::mint(rand::random(), rand::random());
            write_secret(&file, &token.to_text())?;
            tracing::info!(file = %file.display(), "the first token was drawn and written");
            Ok(token)
        }
        Err(error) => Err(error),
    }
}

/// Prepares an empty data directory so that the next `serve` on it begins the cluster's life. Returns where the
/// first token is.
///
/// # Errors
/// The directory is not empty, so its node may belong to a cluster already; or the disk refuses.
pub fn prepare(config: &Config) -> io::Result<PathBuf> {
    let directory = &config.node.data_dir;
    fs::create_dir_all(directory)?;
    let known = [TOKEN_FILE, MARKER_FILE];
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        if !known.iter().any(|known| name == *known) {
            let detail = format!("{} holds {}: this node has begun before", directory.display(), name.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, detail));
        }
    }
    first_token(config)?;
    write_secret(&directory.join(MARKER_FILE), "the next start of this node begins the cluster's life")?;
    Ok(token_file(config))
}

/// Whether this start begins the cluster's life.
pub(crate) fn asked_for(config: &Config) -> bool {
    config.cluster.bootstrap || config.node.data_dir.join(MARKER_FILE).exists()
}

/// Takes back [`prepare`] once the cluster lives.
pub(crate) fn done(config: &Config) {
    if let Err(error) = fs::remove_file(config.node.data_dir.join(MARKER_FILE))
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(%error, "the bootstrap marker stays; it has no effect any more");
    }
}

fn token_file(config: &Config) -> PathBuf {
    config.node.data_dir.join(TOKEN_FILE)
}

fn parse(text: &str, place: &Path) -> io::Result<Token> {
    Token::parse(text.trim()).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{} is not a token hpx_<id>_<secret>", place.display()))
    })
}

/// Writes a file that only this user may read, durably and all at once.
fn write_secret(file: &Path, text: &str) -> io::Result<()> {
    let staged = file.with_extension("staged");
    let mut out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&staged)?;
    writeln!(out, "{text}")?;
    out.sync_all()?;
    fs::rename(&staged, file)?;
    let directory = file.parent().unwrap_or_else(|| Path::new("."));
    File::open(directory)?.sync_all()
}
