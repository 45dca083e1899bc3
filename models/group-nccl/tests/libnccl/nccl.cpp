// A libnccl for tests: the ranks are threads of one process, or one thread, and arrays lie in host memory. It does the work of
// a call before it returns, and its streams are not used. Of what NCCL says about its functions it keeps: calls between
// ncclGroupStart and ncclGroupEnd wait for each other together; a rank that aborts makes the waiting calls of all others fail.
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

enum Status { SUCCESS = 0, UNHANDLED_CUDA_ERROR = 1, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE_ERROR = 6 };
enum Kind { SEND, RECEIVE, GATHER };

typedef std::vector<char> Message;

struct Team {
    std::mutex mutex;
    std::condition_variable changed;
    // Messages under way by kind, sender and receiver.
    std::map<std::tuple<int, int, int>, std::deque<Message>> messages;
    int size = 0, gone = -1;
};

struct Comm {
    std::shared_ptr<Team> team;
    int rank;
};

struct Operation {
    Kind kind;
    Comm* comm;
    const void* from;
    void* to;
    size_t bytes;
    int peer;
};

static std::mutex state;
// Number of the call that fails, from 1 on; 0 for none. MORPHGL_NCCL_FAIL sets it for programs that cannot.
static uint64_t failing_by_environment() {
    const char* call = std::getenv("MORPHGL_NCCL_FAIL");
    return call ? std::strtoul(call, nullptr, 10) : 0;
}
static uint64_t calls = 0, failing = failing_by_environment();
static std::string last_error, failed_call;
static std::set<Comm*> alive;

static thread_local int depth = 0;
static thread_local int group_status = SUCCESS;
static thread_local std::vector<Operation> operations;

static int refuse(Status status, const std::string& why) {
    std::lock_guard<std::mutex> lock(state);
    last_error = why;
    if (depth > 0 && group_status == SUCCESS) group_status = status;
    return status;
}

// Counts a call; whether it is the one that is made to fail.
static bool fails(const char* name) {
    {
        std::lock_guard<std::mutex> lock(state);
        if (++calls != failing) return false;
        failed_call = name;
    }
    refuse(UNHANDLED_CUDA_ERROR, std::string(name) + " is made to fail");
    return true;
}

static bool valid(Comm* comm) {
    std::lock_guard<std::mutex> lock(state);
    return alive.count(comm) == 1;
}

static int receive(Team& team, Kind kind, int from, int to, void* target, size_t bytes) {
    std::unique_lock<std::mutex> lock(team.mutex);
    auto& queue = team.messages[{kind, from, to}];
    team.changed.wait(lock, [&] { return !queue.empty() || team.gone >= 0; });
    if (queue.empty()) return refuse(REMOTE_ERROR, "rank " + std::to_string(team.gone) + " has aborted");
    const Message message = std::move(queue.front());
    queue.pop_front();
    if (message.size() != bytes) return refuse(INVALID_ARGUMENT, "a message of another length");
    std::memcpy(target, message.data(), bytes);
    return SUCCESS;
}

static int run() {
    std::vector<Operation> all;
    all.swap(operations);
    const int status = group_status;
    group_status = SUCCESS;
    if (status != SUCCESS) return status;
    for (const Operation& o : all) {
        if (o.kind == RECEIVE) continue;
        Team& team = *o.comm->team;
        const char* bytes = static_cast<const char*>(o.from);
        const Message message(bytes, bytes + o.bytes);
        std::lock_guard<std::mutex> lock(team.mutex);
        for (int rank = 0; rank < team.size; rank++)
            if (o.kind == GATHER || rank == o.peer) team.messages[{o.kind, o.comm->rank, rank}].push_back(message);
        team.changed.notify_all();
    }
    for (const Operation& o : all) {
        Team& team = *o.comm->team;
        int status = SUCCESS;
        if (o.kind == RECEIVE) status = receive(team, SEND, o.peer, o.comm->rank, o.to, o.bytes);
        for (int rank = 0; rank < team.size && o.kind == GATHER && status == SUCCESS; rank++)
            status = receive(team, GATHER, rank, o.comm->rank, static_cast<char*>(o.to) + rank * o.bytes, o.bytes);
        if (status != SUCCESS) return status;
    }
    return SUCCESS;
}

static int queue(const char* name, const Operation& operation, int type) {
    if (fails(name)) return UNHANDLED_CUDA_ERROR;
    if (!valid(operation.comm)) return refuse(INVALID_ARGUMENT, std::string(name) + ": no such communicator");
    if (type != 7) return refuse(INVALID_ARGUMENT, std::string(name) + ": floats alone are exchanged here");
    if (operation.peer >= operation.comm->team->size) return refuse(INVALID_ARGUMENT, std::string(name) + ": no such rank");
    operations.push_back(operation);
    return depth > 0 ? static_cast<int>(SUCCESS) : run();
}

static void release(Comm* comm, bool aborting) {
    Team& team = *comm->team;
    std::lock_guard<std::mutex> lock(team.mutex);
    if (aborting && team.gone < 0) team.gone = comm->rank;
    team.changed.notify_all();
}

EXPORT int ncclGetVersion(int* version) {
    if (fails("ncclGetVersion")) return UNHANDLED_CUDA_ERROR;
    *version = 22105;
    return SUCCESS;
}

EXPORT const char* ncclGetErrorString(int status) {
    switch (status) {
        case SUCCESS: return "no error";
        case UNHANDLED_CUDA_ERROR: return "unhandled cuda error";
        case INVALID_ARGUMENT: return "invalid argument";
        case INVALID_USAGE: return "invalid usage";
        case REMOTE_ERROR: return "remote process exited or there was a network error";
        default: return "unknown result code";
    }
}

EXPORT const char* ncclGetLastError(void*) {
    static thread_local std::string copy;
    std::lock_guard<std::mutex> lock(state);
    copy = last_error;
    return copy.c_str();
}

EXPORT int ncclCommInitAll(Comm** comms, int count, const int* devices) {
    if (fails("ncclCommInitAll")) return UNHANDLED_CUDA_ERROR;
    if (std::set<int>(devices, devices + count).size() != static_cast<size_t>(count))
        return refuse(INVALID_USAGE, "a device is given twice");
    auto team = std::make_shared<Team>();
    team->size = count;
    std::lock_guard<std::mutex> lock(state);
    for (int rank = 0; rank < count; rank++) alive.insert(comms[rank] = new Comm{team, rank});
    return SUCCESS;
}

// A handle stays readable for the threads that are in a call with it.
static int end(const char* name, Comm* comm, bool aborting) {
    const bool failed = fails(name);
    {
        std::lock_guard<std::mutex> lock(state);
        if (alive.erase(comm) == 0) return INVALID_ARGUMENT;
    }
    release(comm, aborting);
    if (!aborting) delete comm;
    return failed ? UNHANDLED_CUDA_ERROR : SUCCESS;
}

EXPORT int ncclCommDestroy(Comm* comm) { return end("ncclCommDestroy", comm, false); }
EXPORT int ncclCommAbort(Comm* comm) { return end("ncclCommAbort", comm, true); }

EXPORT int ncclCommGetAsyncError(Comm* comm, int* status) {
    if (fails("ncclCommGetAsyncError")) return UNHANDLED_CUDA_ERROR;
    if (!valid(comm)) return refuse(INVALID_ARGUMENT, "ncclCommGetAsyncError: no such communicator");
    *status = SUCCESS;
    return SUCCESS;
}

EXPORT int ncclGroupStart() {
    if (fails("ncclGroupStart")) return UNHANDLED_CUDA_ERROR;
    depth++;
    return SUCCESS;
}

EXPORT int ncclGroupEnd() {
    if (depth == 0) return refuse(INVALID_USAGE, "ncclGroupEnd without ncclGroupStart");
    if (fails("ncclGroupEnd")) {}
    return --depth > 0 ? group_status : run();
}

EXPORT int ncclSend(const void* from, size_t count, int type, int peer, Comm* comm, void*) {
    return queue("ncclSend", Operation{SEND, comm, from, nullptr, count * sizeof(float), peer}, type);
}

EXPORT int ncclRecv(void* to, size_t count, int type, int peer, Comm* comm, void*) {
    return queue("ncclRecv", Operation{RECEIVE, comm, nullptr, to, count * sizeof(float), peer}, type);
}

EXPORT int ncclAllGather(const void* from, void* to, size_t count, int type, Comm* comm, void*) {
    return queue("ncclAllGather", Operation{GATHER, comm, from, to, count * sizeof(float), 0}, type);
}

// For tests: counts calls from 1 on, makes one of them fail (0 none), and forgets those so far.
EXPORT void morphgl_nccl_fail(uint64_t call) {
    std::lock_guard<std::mutex> lock(state);
    calls = 0;
    failing = call;
    failed_call.clear();
    last_error.clear();
}

EXPORT uint64_t morphgl_nccl_calls() {
    std::lock_guard<std::mutex> lock(state);
    return calls;
}

// The call that was made to fail, empty if none was. Valid until the next failure.
EXPORT const char* morphgl_nccl_failed() {
    static thread_local std::string copy;
    std::lock_guard<std::mutex> lock(state);
    copy = failed_call;
    return copy.c_str();
}

// Communicators that were neither destroyed nor aborted.
EXPORT uint64_t morphgl_nccl_alive() {
    std::lock_guard<std::mutex> lock(state);
    return alive.size();
}
