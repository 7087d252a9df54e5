//! Who is calling, and whether the call is allowed. Always from the credential, never from the body.

use crate::role::{Role, Roles};

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Whose data it may see.
    pub tenant: String,
    /// The stable client, which outlives each of its tokens.
    pub client: String,
    /// The namespaces it may use; empty means all of the tenant's.
    pub namespaces: Vec<String>,
    /// What it may do.
    pub roles: Roles,
}

/// Whether a call is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Go on.
    Allowed,
    /// None of the roles that the call needs.
    WrongRole,
    /// The credential is not good for the namespace. Said before anything is looked up, so that it does not
    /// depend on whether the namespace exists.
    WrongNamespace,
}

impl Principal {
    /// Decides about a call that needs any of `roles`, in `namespace` where the call names one.
    /// The role is looked at first.
    #[must_use]
    pub fn authorise(&self, namespace: Option<&str>, roles: &[Role]) -> Decision {
        if !roles.iter().any(|role| self.roles.contains(*role)) {
            return Decision::WrongRole;
        }
        let good = |namespace: &str| self.namespaces.is_empty() || self.namespaces.iter().any(|own| own == namespace);
        if namespace.is_none_or(good) { Decision::Allowed } else { Decision::WrongNamespace }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(namespaces: &[&str]) -> Principal {
        Principal {
            tenant: "acme".to_owned(),
            client: "worker".to_owned(),
            namespaces: namespaces.iter().map(|&name| name.to_owned()).collect(),
            roles: Roles::default().with(Role::Claim).with(Role::Read),
        }
    }

    #[test]
    fn any_of_the_roles_suffices_and_none_is_refused() {
        let principal = principal(&[]);
        assert_eq!(principal.authorise(None, &[Role::Claim]), Decision::Allowed);
        assert_eq!(principal.authorise(Some("n"), &[Role::Operate, Role::Read]), Decision::Allowed);
        assert_eq!(principal.authorise(None, &[Role::Operate, Role::Admin]), Decision::WrongRole);
        // A call whose roles were forgotten is closed to everybody.
        assert_eq!(principal.authorise(None, &[]), Decision::WrongRole);
    }

    #[test]
    fn namespaces_are_compared_whole_and_after_the_role() {
        let principal = principal(&["payments"]);
        assert_eq!(principal.authorise(Some("payments"), &[Role::Claim]), Decision::Allowed);
        for other in ["payment", "payments.eu", "Payments", ""] {
            assert_eq!(principal.authorise(Some(other), &[Role::Claim]), Decision::WrongNamespace, "{other:?}");
        }
        assert_eq!(principal.authorise(Some("refunds"), &[Role::Admin]), Decision::WrongRole);
    }
}
