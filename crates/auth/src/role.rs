//! Roles, and sets of them as they are stored: one bit each, which never changes its meaning.

/// What a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Claim, renew, report, give late evidence.
    Claim,
    /// Register operations and issue authority.
    Issue,
    /// Find out what unknown executions came to, and resolve them.
    Reconcile,
    /// Read operations.
    Read,
    /// Repair operations and run the cluster.
    Operate,
    /// Administer tenants, namespaces and tokens.
    Admin,
}

impl Role {
    /// Every role, in the order of their bits.
    pub const ALL: [Role; 6] = [Role::Claim, Role::Issue, Role::Reconcile, Role::Read, Role::Operate, Role::Admin];

    /// Its name in configuration and on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Claim => "claim",
            Role::Issue => "issue",
            Role::Reconcile => "reconcile",
            Role::Read => "read",
            Role::Operate => "operate",
            Role::Admin => "admin",
        }
    }

    /// The role of a name, if it is one.
    #[must_use]
    pub fn parse(name: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.as_str() == name)
    }

    /// Persisted: a bit is never given another meaning.
    const fn bit(self) -> u32 {
        match self {
            Role::Claim => 1 << 0,
            Role::Issue => 1 << 1,
            Role::Reconcile => 1 << 2,
            Role::Read => 1 << 3,
            Role::Operate => 1 << 4,
            Role::Admin => 1 << 5,
        }
    }
}

/// A set of roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Roles(u32);

impl Roles {
    /// Every role that this version knows.
    #[must_use]
    pub fn all() -> Roles {
        Role::ALL.into_iter().fold(Roles::default(), Roles::with)
    }

    /// The set and one more.
    #[must_use]
    pub const fn with(self, role: Role) -> Roles {
        Roles(self.0 | role.bit())
    }

    /// Whether the role is in the set.
    #[must_use]
    pub const fn contains(self, role: Role) -> bool {
        self.0 & role.bit() != 0
    }

    /// The set as it is stored.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// A stored set. Bits of a later version are kept, and give nothing here.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Roles {
        Roles(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_bits_never_change() {
        let bits: Vec<(&str, u32)> = Role::ALL.into_iter().map(|role| (role.as_str(), role.bit())).collect();
        let stored = [("claim", 1), ("issue", 2), ("reconcile", 4), ("read", 8), ("operate", 16), ("admin", 32)];
        assert_eq!(bits, stored);
        assert_eq!(Roles::all().bits(), 63);
    }

    #[test]
    fn a_role_gives_itself_only() {
        for role in Role::ALL {
            let roles = Roles::default().with(role);
            let given: Vec<Role> = Role::ALL.into_iter().filter(|other| roles.contains(*other)).collect();
            assert_eq!(given, [role]);
            assert_eq!(Role::parse(role.as_str()), Some(role));
        }
        assert_eq!(Role::parse("Claim"), None);
        assert_eq!(Role::parse(""), None);
    }

    #[test]
    fn unknown_bits_survive() {
        let roles = Roles::from_bits(0x8000_0001);
        assert!(roles.contains(Role::Claim) && !roles.contains(Role::Admin));
        assert_eq!(roles.bits(), 0x8000_0001);
    }
}
