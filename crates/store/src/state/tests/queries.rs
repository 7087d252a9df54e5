//! Lists and look-ups, over both media: bounded, resumable, and never a row that is gone or was changed.

use hapax_machine::command::*;
use hapax_machine::ids::*;
use hapax_machine::namespace::OnLapse;
use hapax_machine::operation::{Class, Definite, OperationRecord};
use hapax_machine::outcome::Answer;

use super::super::{EXAMINED_PER_PAGE, Page, Position};
use super::fixture::*;

/// Reads a list to its end in pages of `limit`.
fn all<T>(limit: usize, mut page: impl FnMut(Option<&Position>, usize) -> Page<T>) -> Vec<T> {
    let (mut items, mut after) = (Vec::new(), None);
    loop {
        let (found, next) = page(after.as_ref(), limit);
        assert!(found.len() <= limit);
        items.extend(found);
        match next {
            // What a cursor carries.
            Some(next) => after = Some(Position::new(next.as_bytes())),
            None => return items,
        }
    }
}

fn list(driver: &Driver, class: Class, older_than: Option<WallTime>) -> Vec<OperationId> {
    let view = driver.store.view();
    let name = namespace(OnLapse::Unknown);
    let pages = [1, 3, 500].map(|limit| {
        all(limit, |after, limit| view.list(&tenant(), &name, class, older_than, after, limit).unwrap())
            .into_iter()
            .map(|record| record.id)
            .collect::<Vec<_>>()
    });
    assert!(pages[0] == pages[1] && pages[1] == pages[2], "pages of other sizes show the same");
    pages[0].clone()
}

const CLASSES: [Class; 8] = [
    Class::Requested,
    Class::Executing,
    Class::Unknown,
    Class::Escalated,
    Class::NotApplied,
    Class::Completed,
    Class::Failed,
    Class::Quarantined,
];

fn where_is(driver: &Driver, operation: &OperationRecord) -> Vec<Class> {
    CLASSES.into_iter().filter(|class| list(driver, *class, None).contains(&operation.id)).collect()
}

fn held(operation: &OperationRecord) -> (ExecutionId, LeaseEpoch) {
    let execution = operation.execution.as_ref().unwrap();
    (execution.id, execution.lease_epoch)
}

#[test]
fn an_operation_stands_in_the_list_of_its_state_and_in_no_other() {
    for place in Place::both() {
        let mut driver = Driver::begun(&place);
        driver.one(register(1));
        let seen = |driver: &Driver| where_is(driver, &driver.shown(OnLapse::Unknown, 1).unwrap());
        assert_eq!(seen(&driver), [Class::Requested]);
        driver.pass(10);
        driver.one(claim(OnLapse::Unknown, 1, 1));
        assert_eq!(seen(&driver), [Class::Executing]);
        let (execution, epoch) = held(&driver.shown(OnLapse::Unknown, 1).unwrap());
        driver.one(report(execution, epoch, Definite::NotApplied));
        assert_eq!(seen(&driver), [Class::NotApplied]);
        driver.one(claim(OnLapse::Unknown, 1, 2));
        let (execution, epoch) = held(&driver.shown(OnLapse::Unknown, 1).unwrap());
        driver.one(enveloped(Command::Report(Report {
            caller: caller(),
            execution_id: execution,
            lease_epoch: epoch,
            outcome: None,
            data: ResultData::default(),
        })));
        assert_eq!(seen(&driver), [Class::Unknown]);
        for escalated in [true, false] {
            let (execution_id, lease_epoch) = held(&driver.shown(OnLapse::Unknown, 1).unwrap());
            let reason = "somebody must look".to_owned();
            let command = Escalate { caller: caller(), execution_id, lease_epoch, escalated, reason, proof: None };
            driver.one(enveloped(Command::Escalate(command)));
            assert_eq!(seen(&driver), [if escalated { Class::Escalated } else { Class::Unknown }]);
        }
        let operation = driver.shown(OnLapse::Unknown, 1).unwrap();
        driver.one(repair(&operation, RepairKind::Quarantine));
        assert_eq!(seen(&driver), [Class::Unknown, Class::Quarantined]);
        driver.one(evidence(execution, 2, Definite::Completed));
        assert_eq!(seen(&driver), [Class::Completed, Class::Quarantined]);
        let operation = driver.shown(OnLapse::Unknown, 1).unwrap();
        driver.one(repair(&operation, RepairKind::Release));
        assert_eq!(seen(&driver), [Class::Completed]);
        assert_eq!(physical(&driver.store)["index"], 4, "place, resource, story, external id or none of it");
    }
}

#[test]
fn lists_are_oldest_first_and_end_at_an_age() {
    for place in Place::both() {
        let mut driver = Driver::begun(&place);
        let mut registered = Vec::new();
        for key in [5, 3, 9, 1, 7, 2, 8] {
            driver.pass(1_000);
            driver.one(register(key));
            registered.push(driver.shown(OnLapse::Unknown, key).unwrap());
        }
        let ids = |records: &[OperationRecord]| records.iter().map(|record| record.id).collect::<Vec<_>>();
        assert_eq!(list(&driver, Class::Requested, None), ids(&registered));
        let bound = registered[3].created_at;
        assert_eq!(list(&driver, Class::Requested, Some(bound)), ids(&registered[..3]), "strictly older");
        assert_eq!(list(&driver, Class::Requested, Some(WallTime(0))), []);
        let view = driver.store.view();
        let (other, name) = (TenantId::new("other"), namespace(OnLapse::Unknown));
        assert_eq!(view.list(&other, &name, Class::Requested, None, None, 9).unwrap(), (vec![], None));
        let taken = namespace(OnLapse::Takeover);
        assert_eq!(view.list(&tenant(), &taken, Class::Requested, None, None, 9).unwrap(), (vec![], None));
        assert!(view.list(&tenant(), &name, Class::Requested, None, None, 0).unwrap().0.is_empty());
        // A position of another list shows nothing of it.
        let (_, next) = view.list(&tenant(), &name, Class::Requested, None, None, 2).unwrap();
        let strange = view.list(&tenant(), &taken, Class::Requested, None, next.as_ref(), 9).unwrap();
        assert_eq!(strange, (vec![], None));
    }
}

#[test]
fn a_page_looks_at_so_many_rows_and_says_where_to_go_on() {
    let place = Place::both().into_iter().nth(1).unwrap();
    let mut driver = Driver::begun(&place);
    let many = EXAMINED_PER_PAGE as u64 + 500;
    let claims: Vec<_> = (0..many).map(|key| claim(OnLapse::Unknown, key, key)).collect();
    driver.apply(&claims).unwrap();
    let reports: Vec<_> = (0..many)
        .map(|key| {
            let (execution, epoch) = held(&driver.shown(OnLapse::Unknown, key).unwrap());
            report(execution, epoch, Definite::Failed)
        })
        .collect();
    driver.apply(&reports).unwrap();
    driver.raise(OnLapse::Unknown);
    let last = driver.finish(OnLapse::Unknown, many, Definite::Failed);
    let view = driver.store.view();
    let name = namespace(OnLapse::Unknown);
    let list = |after: Option<&Position>| view.list(&tenant(), &name, Class::Failed, None, after, 5).unwrap();
    let (found, next) = list(None);
    assert!(found.is_empty() && next.is_some(), "all of these are gone, and there are more rows");
    let (found, next) = list(next.as_ref());
    assert_eq!((found, next), (vec![last], None));
}

#[test]
fn operations_are_found_by_what_names_them() {
    for place in Place::both() {
        let mut driver = Driver::begun(&place);
        for key in [4, 5] {
            driver.one(register(key));
            driver.finish(OnLapse::Unknown, key, Definite::Completed);
        }
        let operation = driver.shown(OnLapse::Unknown, 4).unwrap();
        let (execution, _) = held(&operation);
        let view = driver.store.view();
        let (payments, taken) = (namespace(OnLapse::Unknown), namespace(OnLapse::Takeover));
        let by_external =
            |name: &NamespaceName, id: &str| view.by_external_id(&tenant(), name, id, None, 9).unwrap().0;
        assert_eq!(by_external(&payments, &external_id(&execution)), std::slice::from_ref(&operation));
        assert_eq!(by_external(&taken, &external_id(&execution)), []);
        assert_eq!(by_external(&payments, "provider-"), []);
        let by_resource =
            |name: &NamespaceName, key| view.by_resource(&tenant(), name, &resource(key), None, 9).unwrap().0;
        assert_eq!(by_resource(&payments, 4), std::slice::from_ref(&operation));
        assert_eq!(by_resource(&taken, 4), []);
        assert_eq!(by_resource(&payments, 6), []);
        assert_eq!(view.by_correlation(&tenant(), &story(4), None, 9).unwrap().0, [operation]);
        let other = TenantId::new("other");
        assert_eq!(view.by_correlation(&other, &story(4), None, 9).unwrap().0, []);
        assert_eq!(view.by_resource(&other, &payments, &resource(4), None, 9).unwrap().0, []);
        driver.raise(OnLapse::Unknown);
        let view = driver.store.view();
        assert_eq!(view.by_resource(&tenant(), &payments, &resource(4), None, 9).unwrap().0, []);
        assert_eq!(view.by_external_id(&tenant(), &payments, &external_id(&execution), None, 9).unwrap().0, []);
        assert_eq!(view.by_correlation(&tenant(), &story(4), None, 9).unwrap().0, []);
    }
}

#[test]
fn an_outcome_that_stands_no_more_is_not_found_by_its_external_id() {
    for place in Place::both() {
        let mut driver = Driver::begun(&place);
        let operation = driver.finish(OnLapse::Unknown, 1, Definite::NotApplied);
        let id = external_id(&held(&operation).0);
        let found = |driver: &Driver| {
            let view = driver.store.view();
            view.by_external_id(&tenant(), &namespace(OnLapse::Unknown), &id, None, 9).unwrap().0.len()
        };
        assert_eq!(found(&driver), 1);
        driver.one(claim(OnLapse::Unknown, 1, 2));
        assert_eq!(found(&driver), 0);
    }
}

#[test]
fn candidates_come_oldest_first_over_several_namespaces() {
    for place in Place::both() {
        let mut driver = Driver::begun(&place);
        let mut expected = Vec::new();
        for key in 0..80 {
            driver.pass(10);
            let on_lapse = if key % 3 == 0 { OnLapse::Takeover } else { OnLapse::Unknown };
            let Answer::Claimed(grant) = driver.one(claim(on_lapse, key, key)) else { panic!("not claimed") };
            driver.one(enveloped(Command::Report(Report {
                caller: caller(),
                execution_id: grant.execution_id,
                lease_epoch: grant.lease.lease_epoch,
                outcome: None,
                data: ResultData::default(),
            })));
            expected.push(grant.operation_id);
        }
        let view = driver.store.view();
        let both = [namespace(OnLapse::Takeover), namespace(OnLapse::Unknown), NamespaceName::new("absent")];
        for limit in [1, 7, 500] {
            let found = all(limit, |after, limit| view.unknown_oldest(&tenant(), &both, after, limit).unwrap());
            assert_eq!(found.iter().map(|record| record.id).collect::<Vec<_>>(), expected, "pages of {limit}");
        }
        let (one, _) = view.unknown_oldest(&tenant(), &both[..1], None, 500).unwrap();
        assert_eq!(one.len(), 27);
        assert_eq!(view.unknown_oldest(&TenantId::new("other"), &both, None, 9).unwrap(), (vec![], None));
        let (_, next) = view.unknown_oldest(&tenant(), &both, None, 0).unwrap();
        assert_eq!(next, None);
    }
}

#[test]
fn evidence_capabilities_and_refusals_of_an_operation_are_found() {
    for place in Place::both() {
        let mut driver = Driver::begun(&place);
        driver.one(register(1));
        let operation = driver.shown(OnLapse::Unknown, 1).unwrap();
        let wall = driver.wall();
        for decision in [1, 2, 3] {
            driver.one(issue(&operation, decision, wall));
        }
        assert!(matches!(driver.one(claim_with(1, 1, capability_id(1))), Answer::Claimed(_)));
        // The spent one again by two messages, and one that nobody issued.
        driver.one(claim_with(1, 2, capability_id(1)));
        driver.one(claim_with(1, 3, capability_id(1)));
        driver.one(claim_with(1, 3, capability_id(1)));
        driver.one(claim_with(1, 4, capability_id(99)));
        let view = driver.store.view();
        let issued = all(2, |after, limit| view.capabilities_of(&tenant(), &operation.id, after, limit).unwrap());
        assert_eq!(issued.len(), 3);
        let of_capability =
            all(1, |after, limit| view.refusals_of_capability(&tenant(), &capability_id(1), after, limit).unwrap());
        assert_eq!(of_capability.len(), 2);
        assert_eq!(of_capability.iter().map(|(_, record)| record.times).sum::<u32>(), 3);
        let of_operation =
            all(2, |after, limit| view.refusals_of_operation(&tenant(), &operation.id, after, limit).unwrap());
        assert_eq!(of_operation.len(), 3);
        let Message { consumer, id } = message(3);
        let of_message = view.refusals_of_message(&tenant(), &consumer, &id, None, 9).unwrap().0;
        assert_eq!(of_message.iter().map(|(_, record)| record.times).collect::<Vec<_>>(), [2]);
        let in_story = view.refusals_of_correlation(&tenant(), &story(1), None, 9).unwrap().0;
        assert_eq!(in_story.len(), 3);
        assert_eq!(view.refusals_of_correlation(&tenant(), &story(2), None, 9).unwrap().0, []);
        let other = TenantId::new("other");
        assert_eq!(view.refusals_of_capability(&other, &capability_id(1), None, 9).unwrap().0, []);
        assert_eq!(view.capabilities_of(&other, &operation.id, None, 9).unwrap().0, []);
        for _ in 0..2 {
            for kind in [RepairKind::Quarantine, RepairKind::Release] {
                let operation = driver.shown(OnLapse::Unknown, 1).unwrap();
                driver.one(repair(&operation, kind));
            }
        }
        let view = driver.store.view();
        let said = all(3, |after, limit| view.evidence_of_operation(&tenant(), &operation.id, after, limit).unwrap());
        assert_eq!(said.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2, 3]);
        let another = OperationId { birth: Birth(1), ..operation.id };
        assert_eq!(view.evidence_of_operation(&tenant(), &another, None, 9).unwrap().0, []);
        let (execution, epoch) = held(&driver.shown(OnLapse::Unknown, 1).unwrap());
        driver.one(report(execution, epoch, Definite::Completed));
        driver.raise(OnLapse::Unknown);
        let view = driver.store.view();
        assert_eq!(view.evidence_of_operation(&tenant(), &operation.id, None, 9).unwrap().0, []);
        assert_eq!(view.capabilities_of(&tenant(), &operation.id, None, 9).unwrap().0, []);
        assert_eq!(view.refusals_of_operation(&tenant(), &operation.id, None, 9).unwrap().0, []);
        assert_eq!(view.refusals_of_capability(&tenant(), &capability_id(1), None, 9).unwrap().0, []);
        assert_eq!(view.refusals_of_message(&tenant(), &consumer, &id, None, 9).unwrap().0, []);
        assert_eq!(view.refusals_of_correlation(&tenant(), &story(1), None, 9).unwrap().0, []);
    }
}

#[test]
fn what_is_administered_is_listed_by_name() {
    for place in Place::both() {
        let mut driver = Driver::begun(&place);
        for id in ["t3", "t2"] {
            driver.one(enveloped(Command::CreateToken(CreateToken { caller: caller(), record: token(id, "other") })));
        }
        for scope in ["b", "a"] {
            let bump = BumpEpoch { caller: caller(), scope: EpochScope::new(scope), expected: AuthorityEpoch(0) };
            driver.one(enveloped(Command::BumpEpoch(bump)));
        }
        driver.one(register(1));
        let check = |driver: &Driver| {
            let view = driver.store.view();
            let namespaces = view.namespaces_of(&tenant());
            assert_eq!(
                namespaces.iter().map(|record| record.name.as_str()).collect::<Vec<_>>(),
                ["payments", "taken"]
            );
            let tokens = view.tokens_of(&tenant());
            assert_eq!(tokens.iter().map(|record| record.id.as_str()).collect::<Vec<_>>(), ["t1", "t2", "t3"]);
            let epochs = view.epochs_of(&tenant());
            assert_eq!(epochs.iter().map(|record| record.scope.as_str()).collect::<Vec<_>>(), ["a", "b"]);
            assert_eq!(view.tenants().iter().map(|record| record.id.as_str()).collect::<Vec<_>>(), ["default"]);
            let open: Vec<_> = view.statuses().map(|(_, name, status)| (name.as_str(), status.open)).collect();
            assert_eq!(open, [("payments", 1)]);
            assert!(view.namespaces_of(&TenantId::new("other")).is_empty());
            assert!(view.tokens_of(&TenantId::new("other")).is_empty());
        };
        check(&driver);
        driver.store.flush().unwrap();
        drop(driver);
        check(&Driver::on(place.open()));
    }
}
