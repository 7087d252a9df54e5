//! `[[bootstrap.namespaces]]`: the policies that a cluster begins with. Afterwards they are changed through the API.

use hapax_machine::ids::{NamespaceName, TenantId};
use hapax_machine::limits::{RETENTION_MS_MAX, RETENTION_MS_MIN};
use hapax_machine::namespace::{self, NamespaceRecord};
use serde::{Deserialize, Serialize};

/// `[[bootstrap.namespaces]]`
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NamespaceSection {
    /// Its name.
    pub name: String,
    /// Whose keys are compared.
    pub scope: Scope,
    /// What a lapsed lease means.
    pub on_lapse: OnLapse,
    /// Who names later attempts.
    pub attempts: Attempts,
    /// How conflicts are answered.
    pub conflict_style: ConflictStyle,
    /// Request fields that never enter the digest.
    pub transport_fields: Vec<String>,
    /// What a claim must bring.
    pub authority: Authority,
    /// How long terminal operations stay.
    pub retention: RetentionSection,
    /// Reconciliation leases granted a minute; absent means the documented default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reconcile_per_minute: Option<u32>,
}

/// `retention` of a namespace; what is absent is as documented.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetentionSection {
    /// For so long the inline result is kept, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_ms: Option<u64>,
    /// For so long identity and outcome are kept, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity_ms: Option<u64>,
    /// What a key means afterwards.
    pub expired_keys: ExpiredKeys,
}

macro_rules! setting {
    ($(#[$doc:meta])* $name:ident { $($(#[$first_doc:meta])* $first:ident)? ; $($(#[$variant_doc:meta])* $variant:ident),* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $($(#[$first_doc])* #[default] $first,)?
            $($(#[$variant_doc])* $variant,)*
        }
    };
}

setting!(
    /// `scope`
    Scope {
        /// All authorised clients of the namespace.
        Namespace ;
        /// Each client its own.
        Client
    }
);
setting!(
    /// `on_lapse`
    OnLapse {
        /// The outcome is unknown.
        Unknown ;
        /// The next claimant takes over.
        Takeover
    }
);
setting!(
    /// `attempts`
    Attempts {
        /// The next claim is the new decision.
        Automatic ;
        /// The claim names the attempt.
        Explicit
    }
);
setting!(
    /// `conflict_style`
    ConflictStyle {
        /// 409 and 202.
        Hapax ;
        /// 422 and 409.
        Ietf
    }
);
setting!(
    /// `authority`
    Authority {
        /// A claim is itself the decision.
        Inline ;
        /// Every claim presents a capability.
        Capability
    }
);
setting!(
    /// `expired_keys`
    ExpiredKeys {
        /// A new operation.
        New ;
        /// Refused by the creation time that came with the key.
        RejectOlder,
        /// Never forgotten.
        Durable
    }
);

impl NamespaceSection {
    /// The policy of this section for `tenant`.
    pub(crate) fn record(&self, tenant: &TenantId) -> NamespaceRecord {
        let name = NamespaceName::new(self.name.as_str());
        let default = NamespaceRecord::with_defaults(tenant.clone(), name);
        NamespaceRecord {
            scope: match self.scope {
                Scope::Namespace => namespace::Scope::Namespace,
                Scope::Client => namespace::Scope::Client,
            },
            on_lapse: match self.on_lapse {
                OnLapse::Unknown => namespace::OnLapse::Unknown,
                OnLapse::Takeover => namespace::OnLapse::Takeover,
            },
            attempts: match self.attempts {
                Attempts::Automatic => namespace::Attempts::Automatic,
                Attempts::Explicit => namespace::Attempts::Explicit,
            },
            conflict_style: match self.conflict_style {
                ConflictStyle::Hapax => namespace::ConflictStyle::Hapax,
                ConflictStyle::Ietf => namespace::ConflictStyle::Ietf,
            },
            authority: match self.authority {
                Authority::Inline => namespace::Authority::Inline,
                Authority::Capability => namespace::Authority::Capability,
            },
            transport_fields: self.transport_fields.clone(),
            retention: self.retention.policy(default.retention),
            reconcile_per_minute: self.reconcile_per_minute.unwrap_or(default.reconcile_per_minute),
            ..default
        }
    }
}

impl RetentionSection {
    /// The policy, from `default` where nothing is said.
    pub(crate) fn policy(&self, default: namespace::Retention) -> namespace::Retention {
        namespace::Retention {
            body_ms: self.body_ms.unwrap_or(default.body_ms),
            identity_ms: self.identity_ms.unwrap_or(default.identity_ms),
            expired_keys: match self.expired_keys {
                ExpiredKeys::New => namespace::ExpiredKeys::New,
                ExpiredKeys::RejectOlder => namespace::ExpiredKeys::RejectOlder,
                ExpiredKeys::Durable => namespace::ExpiredKeys::Durable,
            },
        }
    }
}

/// Why a retention policy cannot be, if it cannot.
pub(crate) fn refuse_retention(policy: &namespace::Retention) -> Option<&'static str> {
    let range = RETENTION_MS_MIN..=RETENTION_MS_MAX;
    if !range.contains(&policy.body_ms) || !range.contains(&policy.identity_ms) {
        return Some("retention must be between one minute and a hundred years");
    }
    (policy.body_ms > policy.identity_ms)
        .then_some("a result cannot outlive its operation: body_ms is above identity_ms")
}
