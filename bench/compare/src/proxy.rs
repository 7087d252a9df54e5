//! A TCP proxy that is a long line: every byte arrives the delay later, in order, however many are on their way.
//! Threads and not tasks: a runtime's timer is no finer than a millisecond, and the distances here begin at five.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes read at once.
const PIECE_BYTES: usize = 64 * 1024;

/// Accepts connections for ever and carries each to `to`, `delay` each way.
pub fn serve(listener: &TcpListener, to: SocketAddr, delay: Duration) -> anyhow::Result<()> {
    loop {
        let (near, _) = listener.accept()?;
        // A far end that refuses is told to the near one by closing; it may call again.
        let Ok(far) = TcpStream::connect(to) else { continue };
        carry(near, far, delay)?;
    }
}

/// Starts the four threads of one connection. They end with it.
fn carry(near: TcpStream, far: TcpStream, delay: Duration) -> anyhow::Result<()> {
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    for (from, to) in [(near.try_clone()?, far.try_clone()?), (far, near)] {
        let (line, arriving) = channel();
        thread::spawn(move || take_in(from, &line, delay));
        thread::spawn(move || let_out(to, &arriving));
    }
    Ok(())
}

/// What is read now is due a delay later. An end of the stream, or an error, travels as the end of the channel.
fn take_in(mut from: TcpStream, line: &Sender<(Instant, Vec<u8>)>, delay: Duration) {
    let mut buffer = vec![0; PIECE_BYTES];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if line.send((Instant::now() + delay, buffer[..read].to_vec())).is_err() {
            break;
        }
    }
}

fn let_out(mut to: TcpStream, arriving: &Receiver<(Instant, Vec<u8>)>) {
    for (due, piece) in arriving {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&piece).is_err() {
            break;
        }
    }
    // Failing to close what is closed already is no failure; where the far end is gone, its reader must hear of it.
    let _ = to.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::serve;

    /// An echo behind a proxy, and a connection to it.
    fn echo(delay: Duration) -> TcpStream {
        let far = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = far.local_addr().unwrap();
        thread::spawn(move || {
            for stream in far.incoming() {
                let (mut stream, mut buffer) = (stream.unwrap(), [0; 1024]);
                thread::spawn(move || {
                    while let Ok(read @ 1..) = stream.read(&mut buffer) {
                        stream.write_all(&buffer[..read]).unwrap();
                    }
                });
            }
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        thread::spawn(move || serve(&listener, to, delay));
        near.set_nodelay(true).unwrap();
        near
    }

    #[test]
    fn bytes_arrive_in_order_a_delay_later_each_way() {
        let delay = Duration::from_millis(40);
        let mut stream = echo(delay);
        let begun = Instant::now();
        let sent: Vec<u8> = (0..200).collect();
        for byte in &sent {
            stream.write_all(&[*byte]).unwrap();
        }
        let mut received = vec![0; sent.len()];
        stream.read_exact(&mut received).unwrap();
        assert_eq!(received, sent);
        let took = begun.elapsed();
        assert!(took >= delay * 2, "{took:?}");
        // One after the other, the pieces would need sixteen seconds.
        assert!(took < delay * 100, "{took:?}");
    }

    #[test]
    fn an_end_arrives_at_the_other_end() {
        let mut stream = echo(Duration::from_millis(1));
        stream.write_all(b"last").unwrap();
        let mut received = [0; 4];
        stream.read_exact(&mut received).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut received).unwrap(), 0);
    }
}
