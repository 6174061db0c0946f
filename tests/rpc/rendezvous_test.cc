#include "sinew/rpc/membership/rendezvous.h"
#include "sinew/rpc/base/worker_name.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace sinew {
namespace {

EnvironmentReader environment(std::map<std::string, std::string> variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

absl::StatusOr<Rendezvous> parse(const std::string& url, std::optional<int> rank = std::nullopt,
                                 std::optional<int> size = std::nullopt) {
  return parse_rendezvous(url, rank, size, environment({}));
}

TEST(RendezvousTest, Tcp) {
  const auto got = parse("tcp://node7.cluster:29500?rank=1&world_size=4");
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->kind, Rendezvous::Kind::kTcp);
  EXPECT_EQ(got->seeds, std::vector<std::string>{"node7.cluster:29500"});
  EXPECT_EQ(got->rank, 1);
  EXPECT_EQ(got->world_size, 4);
  EXPECT_EQ(parse("tcp://[::1]:80", 0, 2)->seeds, std::vector<std::string>{"[::1]:80"});
  EXPECT_EQ(parse("tcp://h:0")->rank, -1);
  EXPECT_EQ(parse("tcp://h:65535")->world_size, 0);
  EXPECT_EQ(parse("tcp://h:1", 3)->rank, 3) << "open membership may ask for a rank";
}

TEST(RendezvousTest, SeveralSeeds) {
  const auto got = parse("tcp://h1:1,[::1]:2,h-3.net:3?rank=1&world_size=4");
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->seeds, (std::vector<std::string>{"h1:1", "[::1]:2", "h-3.net:3"}));
  EXPECT_EQ(got->world_size, 4);
  EXPECT_EQ(internal::dial_addresses(*got), got->seeds);
}

TEST(RendezvousTest, FileAndInproc) {
  const auto file = parse("file:///srv/a%20b%2525?world_size=2&rank=0");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->kind, Rendezvous::Kind::kFile);
  EXPECT_EQ(file->path, "/srv/a b%25");
  EXPECT_EQ(parse("inproc://job-1", 0, 1)->seeds, std::vector<std::string>{"job-1"});
  EXPECT_EQ(internal::dial_addresses(*parse("inproc://job-1")),
            std::vector<std::string>{"inproc://job-1"});
  EXPECT_EQ(internal::dial_addresses(*parse("tcp://h:1")), std::vector<std::string>{"h:1"});
}

class EtcdRendezvousTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (absl::IsUnimplemented(parse("etcd://h/p").status())) GTEST_SKIP() << "built without etcd";
  }
};

TEST_F(EtcdRendezvousTest, ServersPrefixAndPlace) {
  const auto got = parse("etcd://h1:2379,[::1]:2380,h3/jobs/17?rank=1&world_size=4");
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->kind, Rendezvous::Kind::kEtcd);
  EXPECT_EQ(got->seeds, (std::vector<std::string>{"h1:2379", "[::1]:2380", "h3:2379"}));
  EXPECT_EQ(got->path, "/jobs/17");
  EXPECT_EQ(got->rank, 1);
  EXPECT_EQ(got->world_size, 4);
  const auto open = parse("etcd://h/job/", 3);
  ASSERT_TRUE(open.ok()) << open.status();
  EXPECT_EQ(open->path, "/job");
  EXPECT_EQ(open->rank, 3);
  EXPECT_EQ(open->world_size, 0);
  EXPECT_EQ(parse("etcd://h/job?world_size=2", 1)->rank, 1);
}

// As over a file: it has one place.
TEST_F(EtcdRendezvousTest, WhoFoundsTheJob) {
  const auto founds = [](const std::string& url, std::optional<FoundJob> found_job = {}) {
    return internal::founds_job(*parse(url), found_job);
  };
  EXPECT_TRUE(*founds("etcd://h/p"));
  EXPECT_TRUE(*founds("etcd://h/p?rank=3"));
  EXPECT_FALSE(*founds("etcd://h/p", FoundJob::kRankZero));
  EXPECT_FALSE(*founds("etcd://h/p", FoundJob::kNever));
  EXPECT_TRUE(*founds("etcd://h/p?rank=0&world_size=2"));
  EXPECT_FALSE(*founds("etcd://h/p?rank=1&world_size=2"));
  EXPECT_FALSE(founds("etcd://h/p?rank=0&world_size=2", FoundJob::kAlways).ok());
}

TEST_F(EtcdRendezvousTest, ErrorsNameTheCulprit) {
  const std::pair<std::string, std::string> cases[] = {
      {"etcd://", "a server's address is empty"},
      {"etcd:///p", "a server's address is empty"},
      {"etcd://h:1,,g:1/p", "a server's address is empty"},
      {"etcd://h:1", "it has no prefix"},
      {"etcd://h:1/", "it has no prefix"},
      {"etcd://h:1?rank=0", "it has no prefix"},
      {"etcd://h:1/a//b", "empty part"},
      {"etcd://h:70000/p", "70000"},
      {"etcd://user:word@h:1/p", "user and password are no part of it"},
      {"etcd://h:1/p?rank=x", "rank"},
      {"etcd://h:1/p?world_size=2", "rank is missing"},
      {"etcd://h:1/p?world_size=2&rank=2", "from 0 to 1"},
      {"etcd://h:1/p?lease=2", "'lease'"},
  };
  for (const auto& [url, part] : cases) {
    const auto got = parse(url);
    ASSERT_FALSE(got.ok()) << url;
    EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument) << url;
    EXPECT_NE(std::string(got.status().message()).find(part), std::string::npos)
        << url << ": " << got.status();
    EXPECT_EQ(std::string(got.status().message()).find("word@"), std::string::npos) << url;
  }
  EXPECT_FALSE(parse("etcd://h/p?rank=0", 0, 1).ok());
}

TEST(RendezvousTest, WhoFoundsTheJob) {
  const auto founds = [](const std::string& url, std::optional<FoundJob> found_job = {}) {
    const absl::StatusOr<bool> answer = internal::founds_job(*parse(url), found_job);
    return answer.ok() ? (*answer ? "yes" : "no") : std::string(answer.status().message());
  };
  EXPECT_EQ(founds("tcp://h:1?rank=0&world_size=2"), "yes");
  EXPECT_EQ(founds("tcp://h:1?rank=1&world_size=2"), "no");
  EXPECT_EQ(founds("file:///f?rank=0&world_size=2"), "yes");
  EXPECT_EQ(founds("file:///f?rank=1&world_size=2"), "no");
  EXPECT_EQ(founds("tcp://h:1?rank=0&world_size=2", FoundJob::kNever), "no");
  EXPECT_EQ(founds("tcp://h:1?rank=0&world_size=2", FoundJob::kAlways),
            "WorkerOptions::found_job is kAlways in a fixed world, which its rank 0 founds; leave "
            "it unset");
  EXPECT_EQ(founds("tcp://h:1"), "no");
  EXPECT_EQ(founds("tcp://h:1?rank=3"), "no");
  EXPECT_EQ(founds("tcp://h:1?rank=0"), "yes");
  EXPECT_EQ(founds("tcp://h:1", FoundJob::kAlways), "yes");
  EXPECT_EQ(founds("tcp://h:1?rank=0", FoundJob::kNever), "no");
  EXPECT_EQ(founds("file:///f"), "yes");
  EXPECT_EQ(founds("inproc://n"), "yes");
  EXPECT_EQ(founds("file:///f", FoundJob::kRankZero), "no");
  EXPECT_EQ(founds("file:///f?rank=0", FoundJob::kRankZero), "yes");
}

TEST(RendezvousTest, Environment) {
  const std::map<std::string, std::string> all = {
      {"MASTER_ADDR", "::1"}, {"MASTER_PORT", "123"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}};
  const auto got = parse_rendezvous("env://", {}, {}, environment(all));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->seeds, std::vector<std::string>{"[::1]:123"});
  EXPECT_EQ(got->rank, 1);
  EXPECT_EQ(got->world_size, 2);
  EXPECT_EQ(parse_rendezvous("env://", 0, {}, environment(all))->rank, 0) << "the argument wins";
  for (const std::string name : {"MASTER_ADDR", "MASTER_PORT", "RANK"}) {
    auto some = all;
    some.erase(name);
    const auto missing = parse_rendezvous("env://", {}, {}, environment(some));
    EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
    EXPECT_NE(std::string(missing.status().message()).find(name), std::string::npos)
        << missing.status();
  }
  auto open = all;
  open.erase("WORLD_SIZE");
  open.erase("RANK");
  EXPECT_EQ(parse_rendezvous("env://", {}, {}, environment(open))->world_size, 0);
  for (const auto& [name, junk] : std::map<std::string, std::string>{
           {"MASTER_ADDR", ""}, {"MASTER_PORT", "80x"}, {"RANK", "one"}, {"WORLD_SIZE", ""}}) {
    auto bad = all;
    bad[name] = junk;
    const auto refused = parse_rendezvous("env://", {}, {}, environment(bad));
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(refused.status().message()).find(name), std::string::npos)
        << refused.status();
  }
}

TEST(RendezvousTest, EnvironmentOfAScheduler) {
  const std::map<std::string, std::string> srun = {
      {"SLURM_PROCID", "1"},         {"SLURM_NTASKS", "2"},  {"SLURM_JOB_ID", "17"},
      {"SLURM_STEP_NODELIST", "n1"}, {"SLURM_STEP_ID", "0"}, {"SLURM_LOCALID", "1"}};
  const auto task = parse_rendezvous("env://", {}, {}, environment(srun));
  ASSERT_TRUE(task.ok()) << task.status();
  EXPECT_EQ(task->rank, 1);
  EXPECT_EQ(task->world_size, 2);
  EXPECT_EQ(task->seeds.front().rfind("127.0.0.1:2", 0), 0u) << task->seeds.front();
  EXPECT_EQ(parse_rendezvous("env://", 1, {}, environment(srun))->world_size, 2);
  EXPECT_FALSE(parse_rendezvous("env://?world_size=3", {}, {}, environment(srun)).ok());
  // Open membership takes nothing of it.
  auto open = srun;
  open["MASTER_ADDR"] = "a";
  open["MASTER_PORT"] = "1";
  EXPECT_EQ(parse_rendezvous("env://", {}, 0, environment(open))->rank, -1);
  // Nor do the other URLs.
  EXPECT_EQ(parse_rendezvous("tcp://h:1", {}, {}, environment(srun))->world_size, 0);
}

TEST(RendezvousTest, ErrorsNameTheCulprit) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "is no URL"},
      {"localhost:1", "is no URL"},
      {"http://h:1", "'http' is unknown"},
      {"tcp://h", "has no port"},
      {"tcp://:1", "is missing"},
      {"tcp://h:1,", "has no port"},
      {"tcp://h:1,g", "'g' has no port"},
      {"tcp://h:1,h:1", "'h:1' twice"},
      {"tcp://h:1,g:0", "port 0"},
      {"tcp://a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1,i:1,j:1,k:1,l:1,m:1,n:1,o:1,p:1,q:1", "17 addresses"},
      {"tcp://h:", "port"},
      {"tcp://h:65536", "'65536'"},
      {"tcp://h:-1", "'-1'"},
      {"tcp://::1:80", "in brackets"},
      {"tcp://[::1]", "]:port"},
      {"tcp://a b:1", "'a b'"},
      {"tcp://h:1?rank=x", "rank"},
      {"tcp://h:1?rank=-1", "-1"},
      {"tcp://h:1?rank= 1", "' 1'"},
      {"tcp://h:1?rank=99999999999", "99999999999"},
      {"tcp://h:1?world_size=-2", "-2"},
      {"tcp://h:1?world_size=2", "rank is missing"},
      {"tcp://h:1?world_size=2&rank=2", "from 0 to 1"},
      {"tcp://h:1?rank=0&rank=1", "twice"},
      {"tcp://h:1?timeout=3", "'timeout'"},
      {"file://", "no path"},
      {"file://host/path", "three slashes"},
      {"file:///srv/%zz", "%25"},
      {"file:///srv/%0", "%25"},
      {"file:///srv/%00", "NUL"},
      {"file:///srv/", "folder"},
      {"inproc://", "no name"},
      {"inproc://a/b", "'a/b'"},
      {"env://h:1", "'h:1'"},
  };
  for (const auto& [url, part] : cases) {
    const auto got = parse(url);
    ASSERT_FALSE(got.ok()) << url;
    EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument) << url;
    EXPECT_NE(std::string(got.status().message()).find(part), std::string::npos)
        << url << ": " << got.status();
  }
  EXPECT_NE(
      std::string(parse("tcp://h:1?rank=0", 0, 1).status().message()).find("rank is given in"),
      std::string::npos);
  EXPECT_NE(std::string(parse("tcp://h:1?world_size=1", 0, 1).status().message())
                .find("world size is given in"),
            std::string::npos);
}

TEST(RendezvousTest, SurvivesJunk) {
  const std::uint32_t seed = 20240607;
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::string pieces[] = {"tcp://", "file://", "env://", "/", "%",           "[",
                                "]",      ":",       "?",      "&", "rank=",       "1",
                                "-",      "\0",      "\xff",   "a", "world_size=", "="};
  int accepted = 0;
  for (int i = 0; i < 50000; ++i) {
    std::string url;
    for (std::size_t n = random() % 9; n > 0; --n) url += pieces[random() % std::size(pieces)];
    const auto got = parse(url);
    if (!got.ok()) {
      ASSERT_FALSE(got.status().message().empty()) << url;
      continue;
    }
    ++accepted;
    ASSERT_TRUE(got->world_size == 0 || (got->rank >= 0 && got->rank < got->world_size)) << url;
    ASSERT_NE(got->seeds.empty(), got->path.empty()) << url;
  }
  EXPECT_GT(accepted, 0);
}

TEST(WorkerNameTest, ThreeTexts) {
  EXPECT_TRUE(validate_worker_name("agent-0.rack_1:2").ok());
  EXPECT_TRUE(validate_worker_name(std::string(128, 'x')).ok());
  const std::string empty = std::string(validate_worker_name("").message());
  const std::string longer = std::string(validate_worker_name(std::string(129, 'x')).message());
  const std::string star = std::string(validate_worker_name("a*b").message());
  EXPECT_NE(empty.find("is empty"), std::string::npos);
  EXPECT_NE(longer.find("129"), std::string::npos);
  EXPECT_NE(star.find("'*' at position 1"), std::string::npos) << star;
  for (const char* bad : {" ", "a b", "a\n", "\xc3\xa4", "a/b", "a,b"}) {
    EXPECT_FALSE(validate_worker_name(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace sinew
