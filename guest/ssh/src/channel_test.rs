//! Windows, packets and the end of a channel.

use super::*;

fn channel(window: u32) -> Channel {
    Channel::accepted(Rc::new(Link::new()), 0, Peer { id: 5, window, packet: PACKET_BYTES })
}

fn fill(into: &mut [u8]) -> io::Result<usize> {
    Ok(into.len())
}

#[test]
fn a_client_may_send_more_only_once_what_it_sent_is_taken() {
    let channel = channel(0);
    channel.receive(&vec![0; WINDOW_BYTES as usize]).unwrap();
    assert!(channel.receive(&[0]).is_err());
    channel.take(|bytes| Ok(bytes.len() / 2)).unwrap();
    assert!(channel.receive(&vec![0; WINDOW_BYTES as usize / 2]).is_ok());
    assert!(channel.receive(&[0]).is_err());
}

#[test]
fn no_more_is_sent_than_the_client_takes() {
    let channel = channel(10);
    assert_eq!(channel.send_piece(None, fill).unwrap(), 10);
    assert_eq!(channel.send_piece(None, fill).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    channel.widen(3);
    assert_eq!(channel.send_piece(Some(STDERR), fill).unwrap(), 3);
    channel.widen(u32::MAX);
    channel.widen(u32::MAX);
    assert_eq!(channel.send_piece(None, fill).unwrap(), PIECE_BYTES);
}

#[test]
fn a_client_that_takes_empty_packets_gets_the_smallest_there_are() {
    let peer = Peer { id: 5, window: 10, packet: 0 };
    let channel = Channel::accepted(Rc::new(Link::new()), 0, peer);
    assert_eq!(channel.send_piece(None, fill).unwrap(), 1);
}

#[tokio::test(flavor = "current_thread")]
async fn input_ends_after_its_last_byte() {
    let channel = channel(0);
    channel.receive(b"last").unwrap();
    channel.receive_eof();
    assert!(channel.has_input().await);
    channel.take(|bytes| Ok(bytes.len())).unwrap();
    assert!(!channel.has_input().await);
}

#[tokio::test(flavor = "current_thread")]
async fn input_that_arrived_before_the_close_can_still_be_taken() {
    let channel = channel(0);
    channel.receive(b"last").unwrap();
    channel.leave();
    channel.close();
    assert!(channel.has_input().await);
}

#[tokio::test(flavor = "current_thread")]
async fn a_client_that_goes_wakes_who_waits_for_it() {
    let channel = channel(0);
    let (_, has_space, has_input) = tokio::join!(
        async {
            tokio::task::yield_now().await;
            channel.leave();
        },
        channel.has_space(),
        channel.has_input()
    );
    assert!(!has_space && !has_input);
    assert!(!channel.opened().await);
}

#[tokio::test(flavor = "current_thread")]
async fn a_link_that_is_over_has_no_room_however_full_it_was() {
    let channel = channel(u32::MAX);
    while channel.send_piece(None, fill).is_ok() {}
    let (has_space, ()) = tokio::join!(channel.has_space(), async {
        tokio::task::yield_now().await;
        channel.link.end();
    });
    assert!(!has_space);
    assert!(!channel.has_space().await);
}

#[test]
fn a_closed_channel_sends_nothing_more() {
    let channel = channel(10);
    channel.close();
    assert!(channel.send_piece(None, fill).is_err());
    channel.receive(b"late").unwrap();
    assert!(channel.input.borrow().is_empty());
}
