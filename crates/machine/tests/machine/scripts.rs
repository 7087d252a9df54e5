//! Runs the golden scripts in `tests/scripts`: one per concept, each read as a trace of the protocol.
//! `UPDATE_GOLDENFILES=1` rewrites the expected answers; read the difference before it is committed.
//!
//! | command | does |
//! |---|---|
//! | `bootstrap [wall=MS]` | begins the cluster's life with the namespaces plain, over, explicit, ietf of tenant t, and plain of tenant u |
//! | `CLIENT: register KEY [ns= digest= correlation= resource= made=MS]` | registers |
//! | `CLIENT: claim KEY id=ID [ns= digest= owner= lease= attempt= correlation= cap= msg=CONSUMER/ID epoch=SCOPE@V resource= made=MS]` | claims; the claim id names the execution it may open: `x-ID` |
//! | `CLIENT: locally KEY id=ID [… as claim]` | what a node may answer to that claim from its own state |
//! | `CLIENT: renew x-ID epoch=E [lease=]` | extends |
//! | `CLIENT: report x-ID epoch=E OUTCOME [external= status= result= reason=]` | reports |
//! | `CLIENT: evidence x-ID claim=ID OUTCOME [external= proof=]` | late evidence |
//! | `CLIENT: resolve x-ID epoch=E OUTCOME [proof= external=]` | resolves |
//! | `CLIENT: issue KEY decision=D attempt=N [ns= expires= epoch=SCOPE@V effect=N as=NAME]` | issues a capability: `c-D`, or `c-NAME` |
//! | `CLIENT: issue-bounded RESOURCE decision=D uses=N [ns= expires= epoch=SCOPE@V as=NAME]` | issues one for a resource |
//! | `CLIENT: revoke c-D [reason=]` | takes it back |
//! | `CLIENT: bump SCOPE expected=V` | raises a register of authority |
//! | `CLIENT: reconcile KEY… [ns= owner= lease= limit= seen=E]` | leases those keys' executions; names what is stored unless told otherwise |
//! | `CLIENT: escalate x-ID epoch=E`, `deescalate x-ID epoch=E` | lets it wait for people, or no longer |
//! | `CLIENT: fence x-ID epoch=E [reason= proof=]` | forces the lease to end |
//! | `CLIENT: quarantine KEY expect=STATE [ns= reason= proof=]`, `release`, `close`, `supersede … with=KEY` | repairs |
//! | `lapse KEY [ns= epoch= deadline=]` | the sweep; names what is stored unless told otherwise |
//! | `settle KEY [ns=]` | the sweep after a bump |
//! | `floors NS [compact=MS forget=MS]` | raises retention floors |
//! | `count c-D times=N` | news of refusals repeated from local state, for each one kept with it |
//! | `CLIENT: namespace NAME [of=TENANT version=V on_lapse= attempts= authority= scope= partitions= fields= body= identity= keys= open= pace=]` | writes a policy |
//! | `CLIENT: tenant NAME [version=V system disabled]` | writes a tenant |
//! | `CLIENT: token ID [of=TENANT secret=S holder=CLIENT]`, `revoke-token ID` | makes and revokes a token |
//! | `pass MS`, `elect`, `stamp wall= lead= [term=]` | a tick after MS; another leader; a raw stamp |
//! | `advance wall= [operator]` | moves the wall |
//! | `read KEY`, `look x-ID`, `rows KEY`, `head`, `capability c-D`, `stands SCOPE`, `status NS`, `refusals`, `inbox`, `events`, `chain KEY` | what stands; events since the last time |
//! | `reclaim` | removes every row that is gone, as a compaction does; says how many |
//! | `begin`, `end` | what is between them is one log entry |
//!
//! Everywhere: `tenant=` (t), `only=NS` (a credential for one namespace), `by=MS` (not_after); `now` for an epoch, or for a
//! register's value, is the one that is stored. Rows written stand in brackets, so an answer without brackets changed nothing.

mod show;
mod verbs;

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

use goldenscript::{ArgumentConsumer, Command as Line, Runner};
use hapax_machine::Outcome;
use hapax_machine::clock::Stamp;
use hapax_machine::command::{Caller, Command, Envelope};
use hapax_machine::ids::{CapabilityId, ExecutionId, LeaseTime, NamespaceName};

use crate::memory::{Memory, caller, entry};

type Fallible<T> = Result<T, Box<dyn Error>>;

#[test]
fn every_script_answers_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut scripts: Vec<_> = folder
        .read_dir()
        .expect("the scripts are there")
        .map(|file| file.expect("a readable folder").path())
        .collect();
    scripts.sort();
    assert!(scripts.len() >= 25, "the scripts were found");
    for script in scripts {
        goldenscript::run(&mut Trace::default(), &script).expect("a script that can be run");
    }
}

/// A replica, and what the script said so far.
#[derive(Default)]
struct Trace {
    memory: Memory,
    index: u64,
    term: u64,
    stamp: Stamp,
    calls: u64,
    /// Every execution id drawn, with the name of the claim that drew it: each call of a claim draws another.
    drawn: Vec<(String, ExecutionId)>,
    /// Every capability id drawn, likewise.
    issued: Vec<(String, CapabilityId)>,
    batch: Option<Vec<Envelope>>,
    /// How many events the script has looked at.
    watched: usize,
}

impl Runner for Trace {
    fn run(&mut self, line: &Line) -> Fallible<String> {
        let mut args = line.consume_args();
        let not_after = args.lookup_parse("by")?.map(LeaseTime);
        let client = line.prefix.as_deref().unwrap_or("alice");
        let who = who(client, &mut args);
        match line.name.as_str() {
            "begin" => {
                self.batch = Some(Vec::new());
                return Ok(String::new());
            }
            "end" => {
                let commands = self.batch.take().ok_or("no entry was begun")?;
                return Ok(self.apply(&commands));
            }
            _ => {}
        }
        if let Some(shown) = self.show(&line.name, &who, &mut args)? {
            args.reject_rest()?;
            return Ok(shown);
        }
        let command = self.command(&line.name, who, &mut args)?;
        args.reject_rest()?;
        let envelope = Envelope { not_after: not_after.unwrap_or(LeaseTime(u64::MAX)), command };
        match &mut self.batch {
            Some(batch) => batch.push(envelope),
            None => return Ok(self.apply(&[envelope])),
        }
        Ok(String::new())
    }
}

impl Trace {
    fn apply(&mut self, commands: &[Envelope]) -> String {
        self.index += 1;
        let head = entry(self.index, self.term.max(1), self.stamp);
        let (changes, outcomes) = self.memory.apply(&head, commands);
        let mut text = String::new();
        for Outcome { answer, .. } in &outcomes {
            writeln!(text, "{}", self.answer(answer)).expect("a string grows");
        }
        if let Some(rows) = show::rows_written(&changes) {
            text.truncate(text.trim_end().len());
            writeln!(text, " [{rows}]").expect("a string grows");
        }
        text
    }

    fn time(&mut self, name: &str, args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
        self.term = self.term.max(1);
        match name {
            "pass" => {
                let ms: u64 = verbs::positional(args, "milliseconds")?.parse()?;
                self.stamp.lead_ms += ms;
                self.stamp.wall_ms = self.stamp.wall_ms.max(self.memory.head.clocks.wall.0) + ms;
            }
            "elect" => {
                self.term += 1;
                self.stamp.lead_ms = 0;
            }
            _ => {
                self.stamp.wall_ms = args.lookup_parse("wall")?.unwrap_or(self.stamp.wall_ms);
                self.stamp.lead_ms = args.lookup_parse("lead")?.unwrap_or(self.stamp.lead_ms);
                self.term = args.lookup_parse("term")?.unwrap_or(self.term);
            }
        }
        Ok(Command::Tick)
    }
}

fn who(client: &str, args: &mut ArgumentConsumer<'_>) -> Caller {
    let mut caller = caller(&verbs::text(args, "tenant").unwrap_or("t".into()), client);
    caller.namespaces = verbs::text(args, "only").map(NamespaceName::new).into_iter().collect();
    caller
}
