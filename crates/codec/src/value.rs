//! Encodings of the machine's small values, shared by commands, outcomes and records. Tags are pinned here.
//! A tag is never given another meaning; retired ones stay reserved.

use hapax_machine::clock::Stamp;
use hapax_machine::evidence::Source;
use hapax_machine::ids::{
    Attempt, Birth, ClaimId, ClientId, ContentHash, CorrelationId, Digest, ExecutionId, GroupId, Incarnation,
    InternalKey, LeaseEpoch, LeaseTime, NamespaceName, OperationId, OperationKey, Revision, RuleVersion, Slot,
    TenantId, TenantTag, WallTime,
};
use hapax_machine::namespace::{Attempts, ConflictStyle, OnLapse, Scope};
use hapax_machine::operation::{Definite, State};

use crate::wire::{Error, Reader, Wire};

macro_rules! texts {
    ($($name:ident),+) => {$(
        impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                crate::wire::put_sized(out, self.as_str().as_bytes());
            }
            fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
                from.text().map(Self::new)
            }
        }
    )+};
}

macro_rules! wrappers {
    ($($name:ident),+) => {$(
        impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }
            fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
                Wire::get(from).map(Self)
            }
        }
    )+};
}

/// Values that are nothing but a tag.
macro_rules! tags {
    ($name:ident, $what:literal: $($variant:ident = $tag:literal),+) => {
        impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                out.push(match self {
                    $(Self::$variant => $tag),+
                });
            }
            fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
                match from.u8()? {
                    $($tag => Ok(Self::$variant),)+
                    tag => Err(Error::Tag { what: $what, tag }),
                }
            }
        }
    };
}

/// Values that are their fields, in order.
macro_rules! fields {
    ($name:ident: $($field:ident),+) => {
        impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                let Self { $($field),+ } = self;
                $($field.put(out);)+
            }
            fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
                $(let $field = Wire::get(from)?;)+
                Ok(Self { $($field),+ })
            }
        }
    };
}

pub(crate) use fields;

texts!(TenantId, ClientId, NamespaceName, CorrelationId);
wrappers!(
    GroupId,
    Slot,
    Incarnation,
    LeaseEpoch,
    Birth,
    Attempt,
    RuleVersion,
    LeaseTime,
    WallTime,
    InternalKey,
    Digest,
    ContentHash,
    ClaimId,
    TenantTag
);

fields!(OperationKey: tenant, hash);
fields!(OperationId: slot, hash, birth);
fields!(ExecutionId: slot, random);
fields!(Revision: incarnation, group, index, ordinal);
fields!(Stamp: wall_ms, lead_ms);

// Reserved: 6 requested.
tags!(State, "state": Executing = 1, Unknown = 2, NotApplied = 3, Completed = 4, Failed = 5);
// Reserved: 4 unknown.
tags!(Definite, "outcome": Completed = 1, Failed = 2, NotApplied = 3);
tags!(Scope, "scope": Namespace = 1, Client = 2);
tags!(OnLapse, "on_lapse": Unknown = 1, Takeover = 2);
tags!(Attempts, "attempts": Automatic = 1, Explicit = 2);
tags!(ConflictStyle, "conflict style": Hapax = 1, Ietf = 2);
// Reserved: 4 refusal of a capability, 5 operator's override.
tags!(Source, "source": Report = 1, Evidence = 2, Resolve = 3);
