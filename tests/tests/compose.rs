//! Starts `docker-compose.yml` for real and loses a region: claims through each region's port, stops the leader's
//! container, claims again, starts it, and finds the same receipts through every port. Run by `make compose-test`.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use reqwest::StatusCode;
use serde_json::{Value, json};

/// Services of the compose file with the port each is published on, in the order of their node ids.
const REGIONS: [(&str, u16); 3] = [("eu-west", 7101), ("us-east", 7102), ("ap-south", 7103)];

/// The compose project, so that no other containers of this machine are touched.
const PROJECT: &str = "hapax-compose-test";

/// How long containers may take to become healthy, and how long a claim may take while a region is away.
const HEALTHY_WITHIN: Duration = Duration::from_secs(90);
const SERVED_WITHIN: Duration = Duration::from_secs(15);

/// Compose v2 or 1.29, whichever is installed.
struct Compose {
    program: Vec<&'static str>,
}

impl Compose {
    fn find() -> Result<Compose> {
        let answers = |program: &[&'static str]| {
            let output = Command::new(program[0]).args(&program[1..]).arg("version").output();
            output.is_ok_and(|output| output.status.success())
        };
        let known: [&[&'static str]; 2] = [&["docker", "compose"], &["docker-compose"]];
        let program = known.into_iter().find(|program| answers(program)).context("no compose is installed")?;
        Ok(Compose { program: program.to_vec() })
    }

    /// Runs a compose command on this project; its standard output, or all it said where it failed.
    fn run(&self, arguments: &[&str]) -> Result<String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the repository's root")?;
        let mut command = Command::new(self.program[0]);
        command.args(&self.program[1..]).args(["--project-name", PROJECT]).args(arguments);
        let output =
            command.current_dir(root).env("HAPAX_TARGET", "prebuilt").env_remove("HAPAX_BOOTSTRAP_TOKEN").output()?;
        stdout(&format!("compose {arguments:?}"), output)
    }

    /// The container's health as Docker sees it: `starting`, `healthy` or `unhealthy`.
    fn health(&self, service: &str) -> Result<String> {
        let id = self.run(&["ps", "-q", service])?;
        let format = "{{.State.Health.Status}}";
        let output = Command::new("docker").args(["inspect", "--format", format, id.trim()]).output()?;
        Ok(stdout("docker inspect", output)?.trim().to_owned())
    }

    async fn wait_healthy(&self, services: &[&str]) -> Result<()> {
        for service in services {
            eventually(HEALTHY_WITHIN, || async {
                let health = self.health(service)?;
                ensure!(health == "healthy", "{service} is {health}");
                Ok(())
            })
            .await?;
        }
        Ok(())
    }
}

/// Whatever happened, nothing of the project stays behind.
impl Drop for Compose {
    fn drop(&mut self) {
        if let Err(error) = self.run(&["down", "--volumes", "--timeout", "5"]) {
            eprintln!("compose down: {error:#}");
        }
    }
}

fn stdout(what: &str, output: Output) -> Result<String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{what}: {}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    Ok(text)
}

/// Asks until it succeeds; the last failure where it never does.
async fn eventually<T, F: Future<Output = Result<T>>>(limit: Duration, mut ask: impl FnMut() -> F) -> Result<T> {
    let started = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) if started.elapsed() > limit => return Err(error.context(format!("not within {limit:?}"))),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Speaks HTTP to one region's published port.
struct Region {
    service: &'static str,
    url: String,
    token: String,
    http: reqwest::Client,
}

impl Region {
    async fn post(&self, path: &str, body: &Value) -> Result<(StatusCode, Value)> {
        let request = self.http.post(format!("{}{path}", self.url)).bearer_auth(&self.token).json(body);
        let response = request.send().await?;
        Ok((response.status(), response.json().await?))
    }

    async fn get(&self, path: &str) -> Result<Value> {
        let response = self.http.get(format!("{}{path}", self.url)).bearer_auth(&self.token).send().await?;
        Ok(response.error_for_status()?.json().await?)
    }

    /// Claims with one claim id until the cluster answers. A 503 or 504 is an invitation to ask the same again.
    async fn claim(&self, key: &str) -> Result<(StatusCode, Value)> {
        let body = json!({
            "namespace": "default", "key": key, "request": { "order": key, "amount": "120.00" },
            "claim_id": uuid::Uuid::new_v4().to_string(), "owner": self.service, "lease_ms": 60_000,
        });
        eventually(SERVED_WITHIN, || async {
            let (status, answer) = self.post("/v1/claims", &body).await?;
            ensure!(!status.is_server_error(), "{}: {status} {answer}", self.service);
            Ok((status, answer))
        })
        .await
    }

    /// Claims a fresh key and reports it completed: a receipt that every region must have.
    async fn complete(&self, key: &str) -> Result<Receipt> {
        let (status, grant) = self.claim(key).await?;
        ensure!(status == StatusCode::CREATED && grant["result"] == "claimed", "{}: {status} {grant}", self.service);
        let execution = grant["execution_id"].as_str().context("an execution id")?;
        let body = json!({
            "lease_epoch": grant["lease_epoch"], "outcome": "completed", "status_code": 201,
            "result": { "served_by": self.service }, "external_id": format!("ext-{key}"),
        });
        let path = format!("/v1/executions/{execution}/outcome");
        let (status, answer) = eventually(SERVED_WITHIN, || async {
            let (status, answer) = self.post(&path, &body).await?;
            ensure!(!status.is_server_error(), "{}: {status} {answer}", self.service);
            Ok((status, answer))
        })
        .await?;
        ensure!(status == StatusCode::OK && answer["state"] == "completed", "{}: {status} {answer}", self.service);
        let operation = grant["operation_id"].as_str().context("an operation id")?.to_owned();
        Ok(Receipt { key: key.to_owned(), operation, served_by: self.service })
    }

    /// Finds the receipt by claiming again, and answers with the operation as this region reads it.
    async fn find(&self, receipt: &Receipt) -> Result<Value> {
        let (status, answer) = self.claim(&receipt.key).await?;
        ensure!(status == StatusCode::OK && answer["result"] == "replayed", "{}: {status} {answer}", self.service);
        ensure!(answer["operation_id"] == receipt.operation, "{}: another operation: {answer}", self.service);
        let result = &answer["outcome"]["result"]["served_by"];
        ensure!(result == receipt.served_by, "{}: another receipt: {answer}", self.service);
        let mut operation = self.get(&format!("/v1/operations/{}", receipt.operation)).await?;
        // The revision says when it was read, and that differs.
        operation.as_object_mut().context("an object")?.remove("revision");
        Ok(operation)
    }
}

/// What a completed claim left behind.
struct Receipt {
    key: String,
    operation: String,
    served_by: &'static str,
}

async fn story(compose: &Compose) -> Result<()> {
    compose.run(&["down", "--volumes", "--timeout", "5"])?;
    compose.run(&["up", "--detach", "--no-build"])?;
    compose.wait_healthy(&REGIONS.map(|(service, _)| service)).await?;

    let token = compose.run(&["exec", "-T", "eu-west", "cat", "/var/lib/hapax/bootstrap-token"])?.trim().to_owned();
    let http = reqwest::Client::builder().timeout(Duration::from_secs(5)).build()?;
    let regions = REGIONS.map(|(service, port)| Region {
        service,
        url: format!("http://127.0.0.1:{port}"),
        token: token.clone(),
        http: http.clone(),
    });

    let mut receipts = Vec::new();
    for region in &regions {
        receipts.push(region.complete(&format!("all-up/{}", region.service)).await?);
    }

    let leader = regions[1].get("/v1/cluster").await?["leader_id"].as_u64().context("a leader")?;
    let lost = usize::try_from(leader)?.checked_sub(1).filter(|at| *at < regions.len()).context("a known leader")?;
    eprintln!("stopping {}, which leads", regions[lost].service);
    compose.run(&["stop", regions[lost].service])?;
    ensure!(regions[lost].get("/livez").await.is_err(), "a stopped region answered");
    for region in regions.iter().filter(|region| region.service != regions[lost].service) {
        receipts.push(region.complete(&format!("one-down/{}", region.service)).await?);
    }

    compose.run(&["start", regions[lost].service])?;
    compose.wait_healthy(&[regions[lost].service]).await?;
    receipts.push(regions[lost].complete(&format!("back/{}", regions[lost].service)).await?);

    for receipt in &receipts {
        let first = regions[0].find(receipt).await?;
        for region in &regions[1..] {
            let other = region.find(receipt).await?;
            ensure!(first == other, "{}: {other}\n{}: {first}", region.service, regions[0].service);
        }
    }
    ensure!(receipts.len() == 6, "{} receipts, not 6", receipts.len());
    eprintln!("{} receipts, the same through {} ports", receipts.len(), regions.len());
    Ok(())
}

#[tokio::test]
async fn a_region_is_lost_and_comes_back() {
    let compose = Compose::find().expect("Docker and its compose tool are installed");
    if let Err(error) = story(&compose).await {
        panic!("{error:#}\n{}", compose.run(&["logs", "--tail", "60"]).unwrap_or_default());
    }
}
