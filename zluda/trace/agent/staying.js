// What comes into a process with its first session and stays for good, in a script of its own: Frida disposes of the others'
// memory in a forked child, on the stack of which `fork_alone` is, and at the end of a recording.

const MADV_WIPEONFORK = 18;
const ENDBR64 = 0xfa1e0ff3;
const MAX_DESCRIPTOR = 4096;
const MAX_KEPT = 64;
const DESCRIPTORS_NAME = 'zluda-descriptors';
const FOLLOWING_NAME = 'zluda-following';
const AF_UNIX = 1;

const keep = {};  // what lives as long as the process

// Where a function's first instruction jumps to, once Frida has put a jump there, and how to have it jump elsewhere.
// The jump comes after `endbr64` where the C library is built for indirect branch tracking.
function jumpAt(address) {
  const at = address.readU32() === ENDBR64 ? address.add(4) : address;
  if (at.readU8() === JUMP) {
    const next = at.add(5);
    return {
      target: next.add(at.add(1).readS32()),
      redirect(island) { Memory.patchCode(at, 5, code => { code.add(1).writeS32(island.sub(next).toInt32()); }); },
    };
  }
  if (at.readU16() === JUMP_INDIRECT) {
    const pointer = at.add(6).add(at.add(2).readS32());
    return {
      target: pointer.readPointer(),
      redirect(island) { Memory.patchCode(pointer, 8, code => { code.writePointer(island); }); },
    };
  }
  return null;
}

// Has a function that Frida hooks go first to other code, in memory where a near jump reaches it: `write` puts it there, and
// gets where Frida's jump leads. Null where there is no such jump; `what` says what comes of that.
function comeBefore(name, what, write) {
  const address = Module.getGlobalExportByName(name);
  const jump = jumpAt(address);
  if (jump === null) {
    const start = Array.from(new Uint8Array(address.readByteArray(16)), byte => byte.toString(16).padStart(2, '0')).join('');
    send({ type: 'limit', message: `Frida hooks ${name} in another way here (${start}); ${what}` });
    return null;
  }
  const island = Memory.alloc(Process.pageSize, { near: address, maxDistance: 0x7fff0000 });
  Memory.patchCode(island, 64, code => {
    const writer = new X86Writer(code, { pc: island });
    write(writer, jump.target);
    writer.flush();
  });
  jump.redirect(island);
  return island;
}

// The memory by which children without an agent find the session, and whose it is: `struct following` in execs.c.
function followingMemory() {
  const memory = memoryNamed(FOLLOWING_NAME, Process.pageSize);
  memory.writeS32(Process.id);
  return memory;
}

// `name` is a Unix socket's in the abstract namespace; null: nobody follows.
function setFollower(memory, name) {
  const size = memory.add(4);
  size.writeU32(0);
  if (name === null)
    return;
  memory.add(8).writeU16(AF_UNIX);
  memory.add(10).writeByteArray([0, ...Array.from(name, letter => letter.charCodeAt(0))]);
  size.writeU32(2 + 1 + name.length);
}

function symbols(...names) {
  return Object.fromEntries(names.map(name => [name, Module.getGlobalExportByName(name)]));
}

// vfork as the C library has it: the return address must not be on the stack that the child shares. See forks.c.
const VFORK_CODE = [
  0x5f,                          // pop %rdi
  0xb8, 0x3a, 0x00, 0x00, 0x00,  // mov $SYS_vfork, %eax
  0x0f, 0x05,                    // syscall
  0x57,                          // push %rdi
  0x3d, 0x01, 0xf0, 0xff, 0xff,  // cmp $-4095, %eax
  0x73, 0x01,                    // jae 1f
  0xc3,                          // ret
  0x89, 0xc7,                    // 1: mov %eax, %edi
];

// Threads fork one after the other, and vfork is the kernel's: see forks.c.
function forkAlone(cSource, owner) {
  const page = Process.pageSize;
  const forking = Memory.alloc(page);
  const madvise = new NativeFunction(Module.getGlobalExportByName('madvise'), 'int', ['pointer', 'size_t', 'int']);
  madvise(forking, page, MADV_WIPEONFORK);
  const hooked = Memory.alloc(Process.pointerSize);
  const around = { ...symbols('nanosleep', 'getpid', 'syscall', '__errno_location'), forking, owner, hooked };
  const module = new CModule(cSource, around);
  keep.forks = [module, around];
  keep.fork = comeBefore('fork', 'threads that fork together may end the program', (writer, next) => {
    hooked.writePointer(next);
    writer.putJmpAddress(module.fork_alone);
  });
  keep.vfork = comeBefore('vfork', 'children of vfork are taken for those of fork', writer => {
    writer.putBytes(VFORK_CODE);
    writer.putJmpAddress(module.vfork_failed);
  });
}

// Children without an agent of their own tell what they become, see execs.c.
function followExecs(cSource, following) {
  const hooked = Memory.alloc(Process.pointerSize);
  const names = ['getpid', 'access', 'socket', 'connect', 'send', 'recv', 'close', 'syscall', '__errno_location'];
  const module = new CModule(cSource, { ...symbols(...names), following, hooked });
  keep.execs = [module, hooked];
  keep.exec = comeBefore('execve', 'recording ends where the program starts another by posix_spawn', (writer, next) => {
    hooked.writePointer(next);
    writer.putJmpAddress(module.followed_exec);
  });
}

// Frida's descriptors, as many as are kept open.
function fridasDescriptors() {
  const kept = [];
  for (let descriptor = 0; descriptor !== MAX_DESCRIPTOR && kept.length !== MAX_KEPT; descriptor++)
    if (Cloak.hasFileDescriptor(descriptor))
      kept.push(descriptor);
  return kept;
}

// Frida's descriptors outlive a close_range of the program, see descriptors.c.
function keepDescriptors(cSource, list, owner) {
  const closeRange = Module.findGlobalExportByName('close_range');
  if (closeRange === null)
    return;  // older than glibc 2.34
  const module = new CModule(`#define MAX_KEPT ${MAX_KEPT}\n${cSource}`, { ...symbols('getpid'), kept: list, owner, close_range: closeRange });
  for (const name of ['close_range', 'closefrom']) {
    const address = Module.findGlobalExportByName(name);
    if (address !== null)
      Interceptor.replace(address, module[`${name}_but_kept`]);
  }
  Interceptor.flush();
  keep.descriptors = module;
}

// A process ends when its last thread does, but Frida's threads do not: a main thread that would leave the others by
// `pthread_exit` waits for them instead, see exits.c. Frida, too, cannot end a process without a main thread.
function stayToTheEnd(cSource) {
  const leave = Module.findGlobalExportByName('pthread_exit');
  if (leave === null)
    return;
  const is_fridas = new NativeCallback(thread => Cloak.hasThread(thread) ? 1 : 0, 'int', ['int']);
  const names = ['gettid', 'getpid', 'nanosleep', 'opendir', 'readdir', 'closedir', 'exit'];
  const exits = new CModule(cSource, { ...symbols(...names), is_fridas });
  keep.exits = { exits, is_fridas };
  Interceptor.attach(leave, { onEnter: exits.enter_exit });
}

rpc.exports = {
  // An earlier session of the process, or of the one that it was forked from, may have seen to all: then the list of
  // descriptors is brought up to date.
  begin(sources, follower) {
    const following = memoriesNamed(FOLLOWING_NAME)[0] ?? followingMemory();
    setFollower(following, follower);
    const lists = memoriesNamed(DESCRIPTORS_NAME);
    const first = lists.length === 0;
    if (first)
      lists.push(memoryNamed(DESCRIPTORS_NAME, Process.pageSize));
    const kept = fridasDescriptors();
    for (const list of lists)
      [kept.length, ...kept].forEach((word, index) => list.add(4 * index).writeU32(word));
    if (!first)
      return;
    keepDescriptors(sources.descriptors, lists[0], following);
    forkAlone(sources.forks, following);
    followExecs(sources.execs, following);
    stayToTheEnd(sources.exits);
  },
};
