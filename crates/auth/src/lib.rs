//! From a credential to a principal: bearer tokens, the roles they carry, and what the roles allow.
//! Pure: randomness and time are passed in, and nothing is looked up here.
//!
//! A token is `hpx_<id>_<secret>`: the id finds the record, the secret proves it. Only a hash of the secret is
//! kept. One fast SHA-256 is the right hash here: a password hash is slow in order to protect a secret that people
//! chose and that can be guessed; this one is 256 bits from a random generator, so that trying guesses against a
//! stolen hash is hopeless at any speed, while a slow hash on every request would only help an attacker to
//! exhaust the server.
//!
//! | call | roles, any of |
//! |---|---|
//! | `POST /v1/claims`, `…/renew`, `…/outcome`, `…/evidence` | `claim` |
//! | `GET /v1/operations/{id}`, `POST /v1/operations/lookup` | `read`, `claim` |
//! | `POST …/resolve` | `reconcile`, `operate` |
//! | `GET /v1/cluster` | `read`, `operate`, `admin` |
//! | `/livez`, `/readyz`, `/v1/openapi.json`, `/errors/{code}` | none: no credential |
//!
//! No role contains another: a token that decides about authority (`issue`) cannot thereby spend it (`claim`),
//! and an administrator's token executes nothing. `issue` and `admin` have calls of their own in later versions
//! and are part of the stored encoding from the first.

mod principal;
mod role;
mod token;

pub use principal::{Decision, Principal};
pub use role::{Role, Roles};
pub use token::{Presented, Token, TokenRecord, parse_hash};
