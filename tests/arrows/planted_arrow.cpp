// Linked with plan/verify as its own files are: plan/finish, where this is, is none of what it uses.
namespace tenon {
struct Program;
void plan_memory(Program& program);
}  // namespace tenon

int main(int, char** arguments) { tenon::plan_memory(*reinterpret_cast<tenon::Program*>(arguments)); }
