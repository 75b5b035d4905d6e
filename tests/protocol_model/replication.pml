/* The replication of one partition on three brokers, for an exhaustive search with Spin.

   docs/protocol.md describes the protocol and what this model leaves out. The search visits every
   order of the steps below within the bounds, and evaluates the invariants of `check` after each.
   Compiled with -DWITHOUT_R5 and the like the model lacks one rule, and the search must then find a
   violation. Each step prints what it does, so that Spin can replay a violation as sentences.

   Every step is deterministic and indivisible (d_step), as an event is for the state machine of a
   broker, and a transaction for ZooKeeper. */

#define N 3 /* brokers */
#define FLOOR 2 /* min.insync.replicas */

#ifndef EPOCHS
#define EPOCHS 2 /* leader epochs, including the first */
#endif
#ifndef RECORDS
#define RECORDS 1 /* records that leaders append in all */
#endif
#ifndef CRASHES
#define CRASHES 1 /* power cuts in all */
#endif
#ifndef CHANGES
#define CHANGES 1 /* ISR changes that leaders propose in all */
#endif

#define BIT(r) (1 << (r))
#define IN(r, members) (((members) & BIT(r)) != 0)
#define SIZE(members) (IN(0, members) + IN(1, members) + IN(2, members))

mtype = { FENCED, FOLLOWER, LEADER };

/* -- state ------------------------------------------------------------------------------------- */

typedef Replica {
  bool live;
  mtype role;
  byte epoch;
  /* The log: at each offset the number of the record, and the leader epoch of its batch. */
  byte record[RECORDS];
  byte epoch_at[RECORDS];
  byte end;
  byte durable_end;
  byte hw;
  /* Only of a leader. `ends` has, for each follower, one more than the durable end which it has
     stated in this epoch, and 0 until it has reconciled. */
  byte epoch_start;
  byte isr;
  byte version;
  byte proposed; /* the proposed ISR; 0 for none */
  bool in_flight; /* the proposal is on its way to ZooKeeper */
  byte ends[N];
}

Replica b[N];

/* The state node of the partition. ZooKeeper counts all writes of a node; `zk_version` counts those
   in this epoch, which tells the same writes apart and gives fewer states. */
byte zk_leader, zk_epoch, zk_isr, zk_version;

/* What the controller has granted in each epoch. `to` has the brokers that the request may still
   reach: late ones and repeated ones are included. A restart takes the broker out, because the
   request names its old incarnation. */
typedef Grant { byte leader; byte isr; byte to }
Grant grant[EPOCHS + 1];
#define LEADER_OF(its) grant[its].leader

/* One fetch and one response that the network delays. They can be received at any time and any
   number of times, until others take their place. `from` and `to` are one more than a broker, and
   0 for none. */
typedef Fetch { byte from; byte epoch; byte offset; byte last }
typedef Response { byte to; byte epoch; byte offset; byte last;
                   bool diverges; byte diverging_epoch; byte diverging_end;
                   byte record; byte record_epoch; byte hw }
Fetch late_fetch;
Response late_response;

byte appended, crashes, changes; /* how much of the bounds is used */

/* Which records are committed, that is, acknowledged to a producer with acks=all: by number, one
   more than the offset, and 0 until then. */
byte committed[RECORDS + 1];

/* The response to the fetch that is being handled; variables of loops. Each step ends by clearing
   them, so that they add no states. */
byte diverges, diverging_epoch, diverging_end, sent_record, sent_epoch, sent_hw;
byte i, j, k, epoch, end, members;

/* -- the rules that can be switched off -------------------------------------------------------- */

/* R1: a leader counts fetches of its own epoch only. */
#ifdef WITHOUT_R1
#define SAME_EPOCH(l, its) true
#else
#define SAME_EPOCH(l, its) ((its) == b[l].epoch)
#endif

/* R2: the leader compares the follower's last epoch with its own log. Without it, a follower
   truncates to its high watermark when it takes its role. */
#ifdef WITHOUT_R2
#define DIVERGES(offset, last) false
#define KEPT_END(r) b[r].hw
#else
#define DIVERGES(offset, last) ((last) > 0 && !(epoch == (last) && end >= (offset)))
#define KEPT_END(r) b[r].end
#endif

/* R3: a response counts only for the state in which its request was sent. Without it, one that says
   where to truncate always counts in its epoch. */
#ifdef WITHOUT_R3
#define FITS(f) (late_response.epoch == b[f].epoch && late_response.diverges)
#else
#define FITS(f) (late_response.epoch == b[f].epoch && late_response.offset == STATED_END(f) && \
                 STATED_END(f) == b[f].end && late_response.last == LAST_EPOCH(f))
#endif

/* R4: followers state, and leaders count, what is on disk. */
#ifdef WITHOUT_R4
#define COUNTED_END(r) b[r].end
#define FSYNC_BEFORE_FETCH(r) skip
#else
#define COUNTED_END(r) b[r].durable_end
#define FSYNC_BEFORE_FETCH(r) b[r].durable_end = b[r].end
#endif

/* R5: the high watermark waits for the members of the proposed ISR, too. */
#ifdef WITHOUT_R5
#define COUNTED_MEMBERS(l) b[l].isr
#else
#define COUNTED_MEMBERS(l) (b[l].isr | b[l].proposed)
#endif

/* R6: a joiner has reached the high watermark and the epoch start. */
#ifdef WITHOUT_R6
#define MAY_JOIN(l, f) (b[l].ends[f] > b[l].hw)
#else
#define MAY_JOIN(l, f) (b[l].ends[f] > b[l].hw && b[l].ends[f] > b[l].epoch_start)
#endif

/* R7: see settle_proposal. */

/* R9: a broker that led in this epoch before it restarted may not lead in it again. */
#ifdef WITHOUT_R9
#define MAY_BE_GRANTED_AGAIN(r) true
#else
#define MAY_BE_GRANTED_AGAIN(r) (r != zk_leader)
#endif

/* R14: the controller elects members of the ISR only. */
#ifdef WITHOUT_R14
#define MAY_BE_ELECTED(r) true
#else
#define MAY_BE_ELECTED(r) IN(r, zk_isr)
#endif

/* What a follower states in a fetch: its end, and the epoch of the last batch before that. */
#define STATED_END(f) COUNTED_END(f)
#define LAST_EPOCH(f) (STATED_END(f) == 0 -> 0 : b[f].epoch_at[STATED_END(f) - 1])

/* Brokers 1 and 2 start alike. Exchanging them turns a run in which 2 is elected first into one in
   which 1 is, so the search needs the latter only. */
#if EPOCHS > 2
#define IS_NOT_MIRRORED(r) (r != 2 || grant[2].leader == 1 || grant[EPOCHS - 1].leader == 1)
#else
#define IS_NOT_MIRRORED(r) (r != 2)
#endif

/* -- invariants -------------------------------------------------------------------------------- */

inline clear() {
  diverges = 0; diverging_epoch = 0; diverging_end = 0;
  sent_record = 0; sent_epoch = 0; sent_hw = 0;
  i = 0; j = 0; k = 0; epoch = 0; end = 0; members = 0
}

inline check() {
  /* I11: the leader is in the ISR. */
  assert(IN(zk_leader, zk_isr));
  for (i : 0 .. N - 1) {
    /* I1, I8: every member of the published ISR has each committed record, at its offset. */
    for (j : 1 .. RECORDS) {
      assert(committed[j] == 0 || !IN(i, zk_isr) ||
             (b[i].end >= committed[j] && b[i].record[committed[j] - 1] == j))
    }
    /* I8: no high watermark is above the end of the log. */
    assert(b[i].hw <= b[i].end);
    k = (i + 1) % N;
    for (j : 0 .. RECORDS - 1) {
      /* I3: a leader epoch and an offset name one record, in all logs. */
      assert(j >= b[i].end || j >= b[k].end || b[i].epoch_at[j] != b[k].epoch_at[j] ||
             b[i].record[j] == b[k].record[j]);
      /* I5: below its high watermark a replica has the records that were committed there. */
      assert(j >= b[i].hw || committed[b[i].record[j]] == j + 1);
      /* I6: epochs rise along a log. */
      assert(j == 0 || j >= b[i].end || b[i].epoch_at[j - 1] <= b[i].epoch_at[j])
    }
    /* I6: an epoch has one leader. */
    assert(b[i].role != LEADER || b[k].role != LEADER || b[i].epoch != b[k].epoch)
  }
  clear()
}

/* -- parts of steps ---------------------------------------------------------------------------- */

inline truncate(r, new_end) {
  for (i : new_end .. b[r].end - 1) { b[r].record[i] = 0; b[r].epoch_at[i] = 0 }
  b[r].end = new_end;
  b[r].durable_end = (b[r].durable_end < new_end -> b[r].durable_end : new_end);
  b[r].hw = (b[r].hw < new_end -> b[r].hw : new_end)
}

/* Set `epoch` to the largest epoch in the log that is not above `limit`, and `end` to its end. */
inline find_end(r, limit) {
  epoch = 0; end = 0;
  for (i : 0 .. RECORDS - 1) {
    if
    :: i < b[r].end && b[r].epoch_at[i] <= limit -> epoch = b[r].epoch_at[i]; end = i + 1
    :: else
    fi
  }
}

/* The least counted end over the members, unless the ISR is below the floor (R5). */
inline advance_high_watermark(l) {
  members = COUNTED_MEMBERS(l);
  end = COUNTED_END(l);
  for (i : 0 .. N - 1) {
    if
    :: i != l && IN(i, members) && b[l].ends[i] < end + 1 ->
       end = (b[l].ends[i] == 0 -> 0 : b[l].ends[i] - 1)
    :: else
    fi
  }
  if
  :: end > b[l].hw && SIZE(b[l].isr) >= FLOOR ->
     for (i : b[l].hw .. end - 1) {
       assert(committed[b[l].record[i]] == 0 || committed[b[l].record[i]] == i + 1);
       committed[b[l].record[i]] = i + 1;
       printf("  record %d is committed at offset %d\n", b[l].record[i], i)
     }
     b[l].hw = end
  :: else
  fi
}

inline stop_leading(r) {
  b[r].epoch_start = 0; b[r].isr = 0; b[r].version = 0; b[r].proposed = 0; b[r].in_flight = false;
  for (i : 0 .. N - 1) { b[r].ends[i] = 0 }
}

/* The leader counts a follower whose log is the beginning of its own, and otherwise says where the
   logs diverge (R2). The response has one record at most. */
inline handle_fetch(l, f, its_end, its_last) {
  sent_record = 0; sent_epoch = 0; diverging_epoch = 0; diverging_end = 0;
  find_end(l, its_last);
  diverges = DIVERGES(its_end, its_last);
  if
  :: diverges -> diverging_epoch = epoch; diverging_end = end
  :: !diverges && its_end <= b[l].end ->
     b[l].ends[f] = its_end + 1;
     advance_high_watermark(l);
     if
     :: its_end < b[l].end ->
        sent_record = b[l].record[its_end]; sent_epoch = b[l].epoch_at[its_end]
     :: else
     fi
  :: else
  fi;
  sent_hw = b[l].hw
}

/* The follower truncates to where the logs diverge, or appends; its high watermark is capped. */
inline apply_response(f) {
  if
  :: diverges ->
     find_end(f, diverging_epoch);
     end = (end < diverging_end -> end : diverging_end);
     printf("  broker %d truncates its log to %d\n", f, end);
     truncate(f, end)
  :: !diverges && sent_record > 0 && b[f].end < RECORDS ->
     b[f].record[b[f].end] = sent_record; b[f].epoch_at[b[f].end] = sent_epoch; b[f].end++;
     printf("  broker %d appends record %d of epoch %d\n", f, sent_record, sent_epoch)
  :: else
  fi;
  if
  :: !diverges && sent_hw > b[f].hw -> b[f].hw = (sent_hw < b[f].end -> sent_hw : b[f].end)
  :: else
  fi
}

inline drop_late_response() {
  late_response.to = 0; late_response.epoch = 0; late_response.offset = 0; late_response.last = 0;
  late_response.diverges = false;
  late_response.diverging_epoch = 0; late_response.diverging_end = 0;
  late_response.record = 0; late_response.record_epoch = 0; late_response.hw = 0
}

/* -- steps of a broker ------------------------------------------------------------------------- */

inline take_role(r, g) {
  d_step {
    b[r].live && g <= zk_epoch && g > b[r].epoch && IN(r, grant[g].to) ->
    for (i : 1 .. g) { grant[i].to = grant[i].to & ~BIT(r) } /* they have no effect from now on */
    stop_leading(r);
    b[r].epoch = g;
    if
    :: late_response.to == r + 1 -> drop_late_response() /* of an older epoch */
    :: else
    fi;
    if
    :: grant[g].leader == r ->
       printf("broker %d takes the role of the leader of epoch %d, with the ISR {%d}\n",
              r, g, grant[g].isr);
       b[r].role = LEADER; b[r].epoch_start = b[r].end; b[r].isr = grant[g].isr
    :: else ->
       b[r].role = FOLLOWER;
       end = KEPT_END(r);
       printf("broker %d follows broker %d in epoch %d and keeps its log up to %d\n",
              r, grant[g].leader, g, end);
       truncate(r, end)
    fi;
    b[r].durable_end = b[r].end; /* a change of role fsyncs first (R4) */
    check()
  }
}

inline append(l) {
  d_step {
    b[l].role == LEADER && appended < RECORDS && b[l].end < RECORDS -> appended++;
    b[l].record[b[l].end] = appended; b[l].epoch_at[b[l].end] = b[l].epoch;
    printf("broker %d appends record %d at offset %d in epoch %d\n",
           l, appended, b[l].end, b[l].epoch);
    b[l].end++;
    check()
  }
}

/* A follower fsyncs as part of its next fetch, see FSYNC_BEFORE_FETCH. */
inline fsync_leader(l) {
  d_step {
    b[l].role == LEADER && b[l].durable_end < b[l].end ->
    printf("broker %d fsyncs its log\n", l);
    b[l].durable_end = b[l].end;
    advance_high_watermark(l);
    check()
  }
}

/* A fetch with its response, neither of them late. */
inline fetch(f) {
  d_step {
    b[f].role == FOLLOWER && b[LEADER_OF(b[f].epoch)].role == LEADER &&
    SAME_EPOCH(LEADER_OF(b[f].epoch), b[f].epoch) ->
    FSYNC_BEFORE_FETCH(f);
    k = LEADER_OF(b[f].epoch);
    printf("broker %d fetches from broker %d in epoch %d: end %d, last epoch %d\n",
           f, k, b[f].epoch, STATED_END(f), LAST_EPOCH(f));
    handle_fetch(k, f, STATED_END(f), LAST_EPOCH(f));
    apply_response(f);
    check()
  }
}

inline send_late_fetch(f) {
  d_step {
    b[f].role == FOLLOWER ->
    FSYNC_BEFORE_FETCH(f);
    late_fetch.from = f + 1; late_fetch.epoch = b[f].epoch;
    late_fetch.offset = STATED_END(f); late_fetch.last = LAST_EPOCH(f);
    printf("broker %d sends a fetch that is late, in epoch %d: end %d, last epoch %d\n",
           f, b[f].epoch, STATED_END(f), LAST_EPOCH(f))
  }
}

inline receive_late_fetch(l) {
  d_step {
    b[l].role == LEADER && late_fetch.from > 0 && l == LEADER_OF(late_fetch.epoch) &&
    SAME_EPOCH(l, late_fetch.epoch) ->
    k = late_fetch.from - 1;
    printf("broker %d, leader of epoch %d, receives the late fetch of broker %d\n",
           l, b[l].epoch, k);
    handle_fetch(l, k, late_fetch.offset, late_fetch.last);
    late_response.to = late_fetch.from; late_response.epoch = late_fetch.epoch;
    late_response.offset = late_fetch.offset; late_response.last = late_fetch.last;
    late_response.diverges = diverges;
    late_response.diverging_epoch = diverging_epoch; late_response.diverging_end = diverging_end;
    late_response.record = sent_record; late_response.record_epoch = sent_epoch;
    late_response.hw = sent_hw;
    check()
  }
}

inline receive_late_response(f) {
  d_step {
    b[f].role == FOLLOWER && late_response.to == f + 1 && FITS(f) ->
    printf("broker %d receives the late response to its fetch\n", f);
    diverges = late_response.diverges;
    diverging_epoch = late_response.diverging_epoch; diverging_end = late_response.diverging_end;
    sent_record = late_response.record; sent_epoch = late_response.record_epoch;
    sent_hw = late_response.hw;
    apply_response(f);
    check()
  }
}

/* A leader may remove any follower, since any may lag; it adds one that may join. One proposal at a
   time. */
inline propose_isr(l, f) {
  d_step {
    f != l && b[l].role == LEADER && b[l].proposed == 0 && changes < CHANGES &&
    (IN(f, b[l].isr) || MAY_JOIN(l, f)) -> changes++;
    b[l].proposed = b[l].isr ^ BIT(f); b[l].in_flight = true;
    printf("broker %d proposes the ISR {%d} instead of {%d}\n", l, b[l].proposed, b[l].isr)
  }
}

/* ZooKeeper applies a proposal if the state node has the version that the leader knows. */
inline write_isr(l) {
  d_step {
    b[l].in_flight -> b[l].in_flight = false;
    if
    :: b[l].epoch == zk_epoch && b[l].version == zk_version ->
       zk_isr = b[l].proposed; zk_version++;
       printf("ZooKeeper applies broker %d's proposal: the ISR is {%d}\n", l, zk_isr)
    :: else -> printf("ZooKeeper refuses broker %d's proposal\n", l)
    fi;
    check()
  }
}

/* A leader takes no response of ZooKeeper for granted: it reads the node (R7). Without the rule it
   takes a write whose response was lost for refused. */
inline settle_proposal(l) {
  d_step {
    b[l].role == LEADER && b[l].proposed != 0 && !b[l].in_flight ->
#ifdef WITHOUT_R7
    printf("broker %d loses the result of its proposal, and takes it for refused\n", l);
    b[l].proposed = 0;
    advance_high_watermark(l);
#else
    if
    :: b[l].epoch == zk_epoch ->
       printf("broker %d reads the ISR {%d}\n", l, zk_isr);
       b[l].isr = zk_isr; b[l].version = zk_version; b[l].proposed = 0;
       advance_high_watermark(l)
    :: else ->
       printf("broker %d reads a newer epoch and steps down\n", l);
       stop_leading(l); b[l].role = FENCED
    fi;
#endif
    check()
  }
}

/* A power cut loses what is not on disk. The high watermark is a checkpoint, and survives. */
inline crash(r) {
  d_step {
    b[r].live && crashes < CRASHES -> crashes++;
    printf("broker %d loses power, and of its log what follows %d\n", r, b[r].durable_end);
    b[r].live = false; b[r].role = FENCED; b[r].epoch = 0;
    end = b[r].durable_end;
    truncate(r, end);
    stop_leading(r);
    for (i : 1 .. EPOCHS) { grant[i].to = grant[i].to & ~BIT(r) }
    if
    :: late_response.to == r + 1 -> drop_late_response()
    :: else
    fi;
    check()
  }
}

/* A broker starts fenced. The controller may not have noticed that it was gone. */
inline restart(r) {
  d_step {
    !b[r].live ->
    printf("broker %d restarts\n", r);
    b[r].live = true
  }
}

proctype Broker(byte me) {
end_of_run:
  do
  :: take_role(me, 1)
#if EPOCHS > 1
  :: take_role(me, 2)
#endif
#if EPOCHS > 2
  :: take_role(me, 3)
#endif
#if EPOCHS > 3
  :: take_role(me, 4)
#endif
  :: append(me)
  :: fsync_leader(me)
  :: fetch(me)
  :: send_late_fetch(me)
  :: receive_late_fetch(me)
  :: receive_late_response(me)
  :: propose_isr(me, 0) :: propose_isr(me, 1) :: propose_isr(me, 2)
  :: write_isr(me)
  :: settle_proposal(me)
  :: crash(me)
  :: restart(me)
  od
}

/* -- steps of the controller ------------------------------------------------------------------- */

/* An election after a failure, or one that moves the leader. Members that are down leave the ISR.
   The new epoch is granted to all brokers that are up. */
inline elect(r) {
  d_step {
    zk_epoch < EPOCHS && b[r].live && MAY_BE_ELECTED(r) && IS_NOT_MIRRORED(r) ->
    zk_epoch++; zk_version = 0; zk_leader = r;
    zk_isr = (IN(r, zk_isr) -> zk_isr : BIT(r));
    for (i : 0 .. N - 1) {
      if
      :: b[i].live -> grant[zk_epoch].to = grant[zk_epoch].to | BIT(i)
      :: else -> zk_isr = zk_isr & ~BIT(i)
      fi
    }
    grant[zk_epoch].leader = r; grant[zk_epoch].isr = zk_isr;
    printf("the controller elects broker %d in epoch %d: the ISR is {%d}\n", r, zk_epoch, zk_isr);
    check()
  }
}

/* A broker that has restarted may be granted the current epoch again, as a follower. */
inline grant_again(r) {
  d_step {
    b[r].live && b[r].epoch < zk_epoch && !IN(r, grant[zk_epoch].to) && MAY_BE_GRANTED_AGAIN(r) ->
    printf("the controller grants epoch %d to broker %d again\n", zk_epoch, r);
    grant[zk_epoch].to = grant[zk_epoch].to | BIT(r)
  }
}

proctype Controller() {
end_of_run:
  do
  :: elect(0) :: elect(1) :: elect(2)
  :: grant_again(0) :: grant_again(1) :: grant_again(2)
  od
}

/* Broker 0 leads in epoch 1, all replicas are in sync, and the logs are empty. */
init {
  d_step {
    zk_epoch = 1; zk_isr = 7; grant[1].isr = 7;
    for (i : 0 .. N - 1) { b[i].live = true; b[i].epoch = 1; b[i].role = FOLLOWER }
    b[0].role = LEADER; b[0].isr = 7;
    clear()
  }
  atomic { run Broker(0); run Broker(1); run Broker(2); run Controller() }
}
