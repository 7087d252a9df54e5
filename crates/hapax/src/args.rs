//! The command line: what can be asked, and which file answers.

use std::path::PathBuf;

use clap::{Args as ClapArgs, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::bench::{self, BenchArgs};
use crate::node::ServeOptions;
use crate::output::{self, Format};
use crate::verbs::{administration, authority, operations, repair};
use crate::{calls, dev, doctor, node};

/// Hapax: an operation store. Ask it, before an effect: may I, and has this been done?
#[derive(Debug, Parser)]
#[command(name = "hapax", version, propagate_version = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run three nodes in three regions on loopback, until Ctrl-C.
    Dev {
        /// Where the nodes keep their data; a directory in the system's temporary one otherwise.
        #[arg(long)]
        data_dir: Option<PathBuf>,
        /// The nodes listen for clients on the ports after this one.
        #[arg(long, default_value_t = 7100)]
        port: u16,
        /// How many nodes; an odd number.
        #[arg(long, default_value_t = 3)]
        nodes: u16,
    },
    /// Run one node.
    Serve {
        /// Its configuration.
        #[arg(long)]
        config: PathBuf,
        #[arg(long, hide = true)]
        dev_token: bool,
        #[arg(long, hide = true)]
        until_stdin_closes: bool,
    },
    /// Claim a key: be elected its executor, or learn what stands.
    Claim {
        #[command(flatten)]
        call: Call,
        #[command(flatten)]
        claim: ClaimArgs,
    },
    /// Extend the lease of an execution.
    Renew {
        #[command(flatten)]
        call: Call,
        /// The execution, as its claim named it.
        execution_id: String,
        /// The lease epoch that the claim was granted.
        #[arg(long)]
        lease_epoch: u64,
        /// Length of the lease from now.
        #[arg(long, default_value_t = 60_000)]
        lease_ms: u64,
    },
    /// Report what an execution came to.
    Report {
        #[command(flatten)]
        call: Call,
        #[command(flatten)]
        report: ReportArgs,
    },
    /// Read an operation, by its id, or by its key with --key.
    Get {
        #[command(flatten)]
        call: Call,
        /// The operation's id.
        #[arg(required_unless_present = "key", conflicts_with = "key")]
        operation_id: Option<String>,
        /// Its key instead.
        #[arg(long)]
        key: Option<String>,
        /// The namespace of the key.
        #[arg(long, default_value = "default")]
        namespace: String,
        /// The business epoch that it was claimed with.
        #[arg(long)]
        business_epoch: Option<String>,
    },
    /// Make an operation known before authority for it is issued.
    Register {
        #[command(flatten)]
        call: Call,
        #[command(flatten)]
        register: operations::RegisterArgs,
    },
    /// List the operations in a state, oldest first.
    List {
        #[command(flatten)]
        call: Call,
        #[command(flatten)]
        list: operations::ListArgs,
    },
    /// Find operations by the provider's id, by business entity, or by key.
    Lookup {
        #[command(flatten)]
        call: Call,
        /// The namespace.
        #[arg(long, default_value = "default")]
        namespace: String,
        #[command(flatten)]
        by: operations::LookupArgs,
        #[command(flatten)]
        page: operations::PageArgs,
    },
    /// Print every change of an operation's state as it happens, until Ctrl-C.
    Watch {
        #[command(flatten)]
        call: Call,
        /// Only this namespace.
        #[arg(long)]
        namespace: Option<String>,
        /// Where to go on: a position, or an answer's revision.
        #[arg(long)]
        from: Option<String>,
    },
    /// Send many calls at once, as `POST /v1/batch` documents them.
    Batch {
        #[command(flatten)]
        call: Call,
        /// The body: JSON, `@file`, or `-` for standard input.
        body: String,
    },
    /// Put load on a cluster, check each answer, and tell how long they took.
    Bench {
        #[command(flatten)]
        call: Call,
        #[command(flatten)]
        bench: BenchArgs,
    },
    /// Give late evidence, or read the record.
    #[command(subcommand)]
    Evidence(operations::EvidenceVerb),
    /// Issue, look at, and take back authority.
    #[command(subcommand)]
    Capability(authority::CapabilityVerb),
    /// Registers of authority.
    #[command(subcommand)]
    Epoch(authority::EpochVerb),
    /// Find out what unknown executions came to.
    #[command(subcommand)]
    Reconcile(repair::ReconcileVerb),
    /// Repair operations.
    #[command(subcommand)]
    Operation(repair::RepairVerb),
    /// Policies of namespaces.
    #[command(subcommand)]
    Namespace(administration::NamespaceVerb),
    /// Tenants.
    #[command(subcommand)]
    Tenant(administration::TenantVerb),
    /// Tokens.
    #[command(subcommand)]
    Token(administration::TokenVerb),
    /// Begin, or look at, a cluster.
    #[command(subcommand)]
    Cluster(ClusterVerb),
    /// Check or show a node's configuration.
    #[command(subcommand)]
    Config(ConfigVerb),
    /// Ask a node whether it can answer.
    Health {
        /// The node.
        #[arg(long, env = "HAPAX_URL", default_value = calls::DEFAULT_URL)]
        url: String,
    },
    /// Look into the files of a node that does not run.
    #[command(subcommand)]
    Doctor(DoctorVerb),
    /// Print the completions of a shell.
    Completions {
        /// Which shell.
        shell: Shell,
    },
}

#[derive(Debug, Subcommand)]
enum ClusterVerb {
    /// Prepare this node to begin the cluster's life when it is started next. On exactly one node.
    Init {
        /// Its configuration.
        #[arg(long)]
        config: PathBuf,
    },
    /// Show the members as a node sees them.
    Status {
        #[command(flatten)]
        call: Call,
    },
}

#[derive(Debug, Subcommand)]
enum ConfigVerb {
    /// Say what is wrong with it, if anything is.
    Check {
        /// The file.
        #[arg(long)]
        config: PathBuf,
    },
    /// Print what a node would run with, the environment included and secrets left out.
    Show {
        /// The file.
        #[arg(long)]
        config: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
enum DoctorVerb {
    /// Print every logical row of its state, in the order of the keys.
    State {
        /// The node's data directory.
        #[arg(long)]
        data_dir: PathBuf,
    },
    /// Check its log, entry by entry.
    Log {
        /// The node's data directory.
        #[arg(long)]
        data_dir: PathBuf,
    },
}

/// Whom to call, and how to show the answer.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct Call {
    /// The node, or several separated by commas: the next is asked where one cannot answer.
    #[arg(long, env = "HAPAX_URL", default_value = calls::DEFAULT_URL)]
    pub(crate) url: String,
    /// The bearer token.
    #[arg(long, env = "HAPAX_TOKEN", hide_env_values = true, default_value = "")]
    pub(crate) token: String,
    /// How to print the answer.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
}

/// What is claimed.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct ClaimArgs {
    /// The idempotency key.
    pub(crate) key: String,
    /// Its namespace.
    #[arg(long, default_value = "default")]
    pub(crate) namespace: String,
    /// The request bound to the key, as JSON; `@file` reads a file, `-` standard input.
    #[arg(long, required_unless_present = "digest", conflicts_with = "digest")]
    pub(crate) request: Option<String>,
    /// Its digest under hapax-c14n/1 instead, `sha256:…`.
    #[arg(long)]
    pub(crate) digest: Option<String>,
    /// Part of the identity where the operation may legitimately repeat.
    #[arg(long)]
    pub(crate) business_epoch: Option<String>,
    /// Names this call; drawn at random otherwise. Give the same one to ask again after a lost answer.
    #[arg(long)]
    pub(crate) claim_id: Option<String>,
    /// Who will execute.
    #[arg(long)]
    pub(crate) owner: Option<String>,
    /// Length of the lease.
    #[arg(long, default_value_t = 60_000)]
    pub(crate) lease_ms: u64,
    /// How long to wait for another executor's outcome.
    #[arg(long, default_value_t = 0)]
    pub(crate) wait_ms: u64,
    /// The attempt, where the namespace asks for it.
    #[arg(long)]
    pub(crate) attempt: Option<u32>,
    /// The story it belongs to.
    #[arg(long)]
    pub(crate) correlation_id: Option<String>,
    /// The capability that it presents.
    #[arg(long)]
    pub(crate) capability: Option<String>,
    /// The delivery that led to it, as CONSUMER/ID.
    #[arg(long)]
    pub(crate) message: Option<String>,
    /// The authority epoch that it was decided under, as SCOPE=VALUE.
    #[arg(long)]
    pub(crate) epoch: Option<String>,
    /// The business entity it is about.
    #[arg(long)]
    pub(crate) resource: Option<String>,
    /// When the key was made, where the namespace asks for it.
    #[arg(long)]
    pub(crate) key_created_at: Option<String>,
}

/// What is reported.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct ReportArgs {
    /// The execution, as its claim named it.
    pub(crate) execution_id: String,
    /// completed, failed, not_applied or unknown.
    pub(crate) outcome: String,
    /// The lease epoch that the claim was granted.
    #[arg(long)]
    pub(crate) lease_epoch: u64,
    /// The result, as JSON; `@file` reads a file, `-` standard input.
    #[arg(long)]
    pub(crate) result: Option<String>,
    /// The status that duplicates should get.
    #[arg(long)]
    pub(crate) status_code: Option<u16>,
    /// The provider's own id of the effect.
    #[arg(long)]
    pub(crate) external_id: Option<String>,
    /// Why, for people.
    #[arg(long)]
    pub(crate) reason: Option<String>,
}

/// Does what was asked.
pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    match args.verb {
        Verb::Dev { data_dir, port, nodes } => dev::run(&dev::Options { data_dir, port, nodes }),
        Verb::Serve { config, dev_token, until_stdin_closes } => {
            node::serve(&config, ServeOptions { dev_token, until_stdin_closes })
        }
        Verb::Claim { call, claim } => calls::claim(&call, &claim),
        Verb::Renew { call, execution_id, lease_epoch, lease_ms } => {
            calls::renew(&call, &execution_id, lease_epoch, lease_ms)
        }
        Verb::Report { call, report } => calls::report(&call, &report),
        Verb::Get { call, operation_id: Some(id), .. } => calls::get(&call, &id),
        Verb::Get { call, operation_id: None, key, namespace, business_epoch } => {
            calls::lookup(&call, &namespace, &key.unwrap_or_default(), business_epoch.as_deref())
        }
        Verb::Register { call, register } => operations::register(&call, &register),
        Verb::List { call, list } => operations::list(&call, &list),
        Verb::Lookup { call, namespace, by, page } => operations::lookup(&call, &namespace, &by, &page),
        Verb::Watch { call, namespace, from } => operations::watch(&call, namespace.as_ref(), from.as_ref()),
        Verb::Batch { call, body } => operations::batch(&call, &body),
        Verb::Bench { call, bench } => bench::bench(&call, &bench),
        Verb::Evidence(verb) => operations::evidence(&verb),
        Verb::Capability(verb) => authority::capability(&verb),
        Verb::Epoch(verb) => authority::epoch(&verb),
        Verb::Reconcile(verb) => repair::reconcile(&verb),
        Verb::Operation(verb) => repair::repair(&verb),
        Verb::Namespace(verb) => administration::namespace(&verb),
        Verb::Tenant(verb) => administration::tenant(&verb),
        Verb::Token(verb) => administration::token(&verb),
        Verb::Cluster(ClusterVerb::Init { config }) => node::init(&config),
        Verb::Cluster(ClusterVerb::Status { call }) => calls::cluster_status(&call),
        Verb::Config(ConfigVerb::Check { config }) => node::check(&config),
        Verb::Config(ConfigVerb::Show { config }) => node::show(&config),
        Verb::Health { url } => calls::health(&url),
        Verb::Doctor(DoctorVerb::State { data_dir }) => doctor::state(&data_dir),
        Verb::Doctor(DoctorVerb::Log { data_dir }) => doctor::log(&data_dir),
        Verb::Completions { shell } => {
            clap_complete::generate(shell, &mut Args::command(), "hapax", &mut output::stdout());
            Ok(())
        }
    }
}
