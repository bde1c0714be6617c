// What comes into a process with its first recording and stays for good, in a script of its own: Frida disposes of the
// others' memory at the end of a recording. What is put into the C library here is put there once: later recordings of the
// process, and those of children forked from it, each with an agent of its own, find it by its memory's name, and change that.

const AGENTS_NAME = 'zluda-agents';
const MAX_AGENTS = 500;
const AF_UNIX = 1;
const ENDBR64 = 0xfa1e0ff3;

const keep = {};  // what lives as long as the process

// `name` is a Unix socket's in the abstract namespace, by which children find the session: `struct following` in execs.c.
function setFollower(following, name) {
  const size = following.add(4);
  size.writeU32(0);
  following.writeS32(Process.id);
  following.add(8).writeU16(AF_UNIX);
  following.add(10).writeByteArray([0, ...Array.from(name, letter => letter.charCodeAt(0))]);
  size.writeU32(2 + 1 + name.length);
}

function symbols(...names) {
  return Object.fromEntries(names.map(name => [name, Module.getGlobalExportByName(name)]));
}

// A function, and room for where its own code is, which is known only once other code stands in its place.
function replaceable(name) {
  return { address: Module.getGlobalExportByName(name), real: Memory.alloc(Process.pointerSize) };
}

// Code in memory where a near jump from an address reaches it.
function codeNear(address, write) {
  const island = Memory.alloc(Process.pageSize, { near: address, maxDistance: 0x7fff0000 });
  Memory.patchCode(island, 64, code => {
    const writer = new X86Writer(code, { pc: island });
    write(writer);
    writer.flush();
  });
  keep[address] = island;
  return island;
}

function replace({ address, real }, write) {
  real.writePointer(Interceptor.replaceFast(address, codeNear(address, write)));
}

// Have a function begin with a jump that takes the place of its first instruction, of five bytes or more (after `endbr64`,
// where the C library is built for indirect branch tracking); its own code is lost. Frida finds no room for that in execve.
function takePlace(name, write) {
  const address = Module.getGlobalExportByName(name);
  const at = address.readU32() === ENDBR64 ? address.add(4) : address;
  const island = codeNear(address, write);
  Memory.patchCode(at, 5, code => { code.writeU8(JUMP).add(1).writeS32(island.sub(at.add(5)).toInt32()); });
}

// Children, and what a process becomes, are the session's to see to: forks.c and execs.c.
function followChildren(sources, following, forget) {
  const fork = replaceable('fork');
  const names = ['access', 'socket', 'connect', 'setsockopt', 'send', 'recv', 'close', 'syscall', '__errno_location'];
  const execs = new CModule(sources.execs, { ...symbols(...names), following });
  const first = following.add(FIRST_AT);
  const forks = new CModule(sources.forks, { ...symbols('getpid', 'nanosleep', '__errno_location'),
    first, real_fork: fork.real, forget_agents: forget, tell_fork: execs.tell_fork });
  first.add(8).writePointer(forks.ask_at_first_use);
  keep.children = [fork, execs, forks];
  replace(fork, writer => writer.putJmpAddress(forks.followed_fork));
  takePlace('execve', writer => writer.putJmpAddress(execs.followed_exec));
}

// Frida's descriptors outlive what the program closes, see descriptors.c. Of close this is in assembly: a thread that is
// cancelled there is unwound, and there is nothing to unwind here. Returns what a forked child calls.
function keepDescriptors(cSource, list, owner, agents) {
  const close = replaceable('close');
  const closeRange = Module.findGlobalExportByName('close_range');  // null: older than glibc 2.34
  const module = new CModule(`#define MAX_KEPT ${MAX_KEPT}\n#define MAX_DESCRIPTOR ${MAX_DESCRIPTOR}\n${cSource}`, {
    ...symbols('getpid', '__errno_location'), kept: list, owner, agent_count: agents, real_close: close.real,
    close_range: closeRange ?? NULL });
  replace(close, writer => {
    writer.putBytes([0x81, 0xff, MAX_DESCRIPTOR & 0xff, MAX_DESCRIPTOR >> 8, 0, 0]);  // cmp $MAX_DESCRIPTOR, %edi
    writer.putJccShortLabel('jae', 'own', 'no-hint');
    writer.putMovRegAddress('rax', list.add(DESCRIPTORS_AT.bits));
    writer.putBytes([0x0f, 0xa3, 0x38]);  // bt %edi, (%rax)
    writer.putJccShortLabel('jae', 'own', 'no-hint');
    writer.putMovRegRegPtr('rsi', 'rsp');
    writer.putJmpAddress(module.close_but_kept);
    writer.putLabel('own');
    writer.putMovRegAddress('rax', close.real);
    writer.putBytes([0xff, 0x20]);  // jmp *(%rax)
  });
  if (closeRange !== null)
    for (const name of ['close_range', 'closefrom']) {
      const address = Module.findGlobalExportByName(name);
      if (address !== null)
        Interceptor.replace(address, module[`${name}_but_kept`]);
    }
  keep.descriptors = [module, close];
  return module.forget_agents;
}

// A process ends when its last thread does, but Frida's threads do not: a main thread that would leave the others by
// `pthread_exit` waits for them instead, see exits.c. Frida, too, cannot end a process without a main thread.
function stayToTheEnd(cSource, agents) {
  const leave = Module.findGlobalExportByName('pthread_exit');
  if (leave === null)
    return;
  const names = ['gettid', 'getpid', 'nanosleep', 'opendir', 'readdir', 'closedir', 'exit'];
  const exits = new CModule(cSource, { ...symbols(...names), agents });
  keep.exits = exits;
  Interceptor.attach(leave, { onEnter: exits.enter_exit });
}

// Where this agent's code is.
function placeOfAgent() {
  const module = new CModule(
    '#include <gum/guminterceptor.h>\nvoid * place (void) { return gum_invocation_context_get_listener_function_data; }');
  const place = new NativeFunction(module.place, 'pointer', [])();
  module.dispose();
  return place;
}

// The first byte of that and the one behind the last. (Frida leaves its own memory out of what it enumerates.)
function codeOfAgent() {
  const place = placeOfAgent();
  for (const line of File.readAllText('/proc/self/maps').split('\n')) {
    const ends = line.split(' ')[0].split('-').map(digits => ptr(`0x${digits || 0}`));
    if (ends.length === 2 && place.compare(ends[0]) >= 0 && place.compare(ends[1]) < 0)
      return ends;
  }
  throw new Error(`nothing is mapped at ${place}`);
}

// Puts this agent on the list of the process's: how many there are, then the place of each and what tells its threads.
function enroll(agents) {
  const place = placeOfAgent(), count = agents.readU64().toNumber(), entry = agents.add(8 + 16 * count);
  for (let number = 0; number !== count; number++)
    if (agents.add(8 + 16 * number).readPointer().equals(place))
      return;
  if (count === MAX_AGENTS)
    throw new Error(`this process has been recorded ${MAX_AGENTS} times`);
  keep.is_fridas = new NativeCallback(thread => Cloak.hasThread(thread) ? 1 : 0, 'int', ['int']);
  entry.writePointer(place);
  entry.add(8).writePointer(keep.is_fridas);
  agents.writeU64(count + 1);
}

rpc.exports = {
  begin(sources, follower) {
    const page = Process.pageSize;
    const found = memoriesNamed(FOLLOWING_NAME)[0], first = found === undefined;
    const memory = (name, pages) => first ? memoryNamed(name, pages * page) : memoriesNamed(name)[0];
    const following = found ?? memory(FOLLOWING_NAME, 1);
    const list = memory(DESCRIPTORS_NAME, 1), agents = memory(AGENTS_NAME, 2);
    setFollower(following, follower);
    codeOfAgent().forEach((end, index) => list.add(DESCRIPTORS_AT.code + 8 * index).writePointer(end));
    keepOpen(list);
    enroll(agents);
    if (!first)
      return;
    stayToTheEnd(sources.exits, agents);
    followChildren(sources, following, keepDescriptors(sources.descriptors, list, following, agents));
    Interceptor.flush();
  },
};
